//! When each alert fires, and when it must not (operator.md h).

/// What is scraped, minute by minute, and whether the alert fires then.
pub struct Case {
    /// The alert.
    pub alert: &'static str,
    /// Whether it fires.
    pub fires: bool,
    /// What is staged.
    pub what: &'static str,
    /// After so many minutes.
    pub at: u32,
    /// Series in promtool's notation; replica `a`, unless they name a pod.
    pub series: &'static [&'static str],
}

macro_rules! cases {
    ($($alert:ident $fires:ident $at:literal $what:literal [$($series:literal),* $(,)?];)*) => {
        /// All of them.
        pub const CASES: &[Case] = &[$(Case {
            alert: stringify!($alert), fires: cases!(@ $fires), at: $at, what: $what, series: &[$($series),*],
        }),*];
    };
    (@ fires) => { true };
    (@ quiet) => { false };
}

cases! {
    IPAMNoAddressesLeft fires 10 "both pools of the family are full" [
        "ipam_ippool_available{ippool=\"p\"} 0x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60", "ipam_ippool_info{ippool=\"p\",ip_version=\"4\",allowed_uses=\"Tunnel,Workload\",assignment_mode=\"Automatic\"} 1x60",
        "ipam_ippool_available{ippool=\"q\"} 0x60", "ipam_ippool_allocatable{ippool=\"q\"} 1x60", "ipam_ippool_info{ippool=\"q\",ip_version=\"4\",allowed_uses=\"Workload\",assignment_mode=\"Automatic\"} 1x60"];
    IPAMNoAddressesLeft quiet 30 "one is full, the other has some" [
        "ipam_ippool_available{ippool=\"p\"} 0x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60", "ipam_ippool_info{ippool=\"p\",ip_version=\"4\",allowed_uses=\"Workload\",assignment_mode=\"Automatic\"} 1x60",
        "ipam_ippool_available{ippool=\"q\"} 1x60", "ipam_ippool_allocatable{ippool=\"q\"} 1x60", "ipam_ippool_info{ippool=\"q\",ip_version=\"4\",allowed_uses=\"Tunnel,Workload\",assignment_mode=\"Automatic\"} 1x60"];
    IPAMNoAddressesLeft quiet 30 "the full ones are for load balancers, by hand, or disabled" [
        "ipam_ippool_available{ippool=\"p\"} 0x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60", "ipam_ippool_info{ippool=\"p\",ip_version=\"4\",allowed_uses=\"LoadBalancer\",assignment_mode=\"Automatic\"} 1x60",
        "ipam_ippool_available{ippool=\"q\"} 0x60", "ipam_ippool_allocatable{ippool=\"q\"} 1x60", "ipam_ippool_info{ippool=\"q\",ip_version=\"4\",allowed_uses=\"Workload\",assignment_mode=\"Manual\"} 1x60",
        "ipam_ippool_available{ippool=\"r\"} 0x60", "ipam_ippool_allocatable{ippool=\"r\"} 0x60", "ipam_ippool_info{ippool=\"r\",ip_version=\"6\",allowed_uses=\"Workload\",assignment_mode=\"Automatic\"} 1x60"];
    IPAMAddressConflict fires 12 "one pod uses another's address" ["ipam_findings{kind=\"used-by-other\",severity=\"error\"} 1x60"];
    IPAMAddressConflict quiet 20 "a name of a StatefulSet is handed over" ["ipam_findings{kind=\"used-by-other\",severity=\"error\"} 1x8 0x60"];
    IPAMPoolFull fires 12 "full" ["ipam_ippool_available{ippool=\"p\"} 0x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60"];
    IPAMPoolFull quiet 30 "full, and disabled" ["ipam_ippool_available{ippool=\"p\"} 0x60", "ipam_ippool_allocatable{ippool=\"p\"} 0x60"];
    IPAMPoolNearlyFull fires 20 "95 % taken" [
        "ipam_ippool_size{ippool=\"p\"} 256x60", "ipam_ippool_reserved{ippool=\"p\"} 56x60", "ipam_ippool_available{ippool=\"p\"} 10x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60"];
    IPAMPoolNearlyFull quiet 40 "a tiny one, one that is full, one at 90 %" [
        "ipam_ippool_size{ippool=\"p\"} 32x60", "ipam_ippool_reserved{ippool=\"p\"} 0x60", "ipam_ippool_available{ippool=\"p\"} 1x60", "ipam_ippool_allocatable{ippool=\"p\"} 1x60",
        "ipam_ippool_size{ippool=\"q\"} 256x60", "ipam_ippool_reserved{ippool=\"q\"} 0x60", "ipam_ippool_available{ippool=\"q\"} 0x60", "ipam_ippool_allocatable{ippool=\"q\"} 1x60",
        "ipam_ippool_size{ippool=\"r\"} 1000x60", "ipam_ippool_reserved{ippool=\"r\"} 0x60", "ipam_ippool_available{ippool=\"r\"} 100x60", "ipam_ippool_allocatable{ippool=\"r\"} 1x60"];
    IPAMPoolFullSoon fires 480 "60 addresses an hour go, 500 are left" [
        "ipam_ippool_size{ippool=\"p\"} 4096x600", "ipam_ippool_reserved{ippool=\"p\"} 0x600", "ipam_ippool_available{ippool=\"p\"} 1000-1x600", "ipam_ippool_allocatable{ippool=\"p\"} 1x600"];
    IPAMPoolFullSoon quiet 900 "one step by a rollout, then flat" [
        "ipam_ippool_size{ippool=\"p\"} 4096x1000", "ipam_ippool_reserved{ippool=\"p\"} 0x1000", "ipam_ippool_available{ippool=\"p\"} 1600x300 1200x700", "ipam_ippool_allocatable{ippool=\"p\"} 1x1000"];
    IPAMPoolFullSoon quiet 480 "it falls, and the pool is roomy" [
        "ipam_ippool_size{ippool=\"p\"} 65536x600", "ipam_ippool_reserved{ippool=\"p\"} 0x600", "ipam_ippool_available{ippool=\"p\"} 60000-50x600", "ipam_ippool_allocatable{ippool=\"p\"} 1x600"];
    IPAMCoolingFillsPool fires 20 "a quarter cools, nothing else is left" [
        "ipam_ippool_size{ippool=\"p\"} 400x60", "ipam_ippool_reserved{ippool=\"p\"} 0x60", "ipam_ippool_available{ippool=\"p\"} 10x60", "ipam_allocations_cooling{ippool=\"p\"} 100x60"];
    IPAMCoolingFillsPool quiet 40 "much cools, and there is room" [
        "ipam_ippool_size{ippool=\"p\"} 400x60", "ipam_ippool_reserved{ippool=\"p\"} 0x60", "ipam_ippool_available{ippool=\"p\"} 100x60", "ipam_allocations_cooling{ippool=\"p\"} 200x60"];
    IPAMBlockLimitReached fires 20 "one node" ["ipam_nodes_at_block_limit{ip_version=\"4\"} 1x60"];
    IPAMBlockLimitReached quiet 40 "none" ["ipam_nodes_at_block_limit{ip_version=\"4\"} 0x60"];
    IPAMLeaksNotReclaimed fires 90 "five have been due for more than an hour" ["ipam_gc_leaks{ippool=\"p\",state=\"due\"} 5x120"];
    IPAMLeaksNotReclaimed quiet 200 "a drain at the rate limit, gone within the hour" ["ipam_gc_leaks{ippool=\"p\",state=\"due\"} 0x60 3000-60x50 0x100"];
    IPAMLeaksNotReclaimed quiet 120 "what waits for somebody has a state of its own" [
        "ipam_gc_leaks{ippool=\"p\",state=\"due\"} 0x130", "ipam_gc_leaks{ippool=\"p\",state=\"audit\"} 9x130", "ipam_gc_leaks{ippool=\"p\",state=\"paused\"} 9x130", "ipam_gc_leaks{ippool=\"p\",state=\"brake\"} 9x130",
        "ipam_gc_leaks{ippool=\"p\",state=\"opted_out\"} 9x130", "ipam_gc_leaks{ippool=\"p\",state=\"handle_held\"} 9x130"];
    IPAMLeaksHigh fires 20 "300 of 1000" ["ipam_gc_leaks{ippool=\"p\",state=\"grace\"} 200x60", "ipam_gc_leaks{ippool=\"q\",state=\"due\"} 100x60", "ipam_allocations_in_use{ippool=\"p\",node=\"a\"} 1000x60"];
    IPAMLeaksHigh quiet 40 "all of a small cluster" ["ipam_gc_leaks{ippool=\"p\",state=\"grace\"} 90x60", "ipam_allocations_in_use{ippool=\"p\",node=\"a\"} 100x60"];
    IPAMLeaksHigh quiet 40 "many, and the cluster is large, or they are opted out" [
        "ipam_gc_leaks{ippool=\"p\",state=\"grace\"} 900x60", "ipam_gc_leaks{ippool=\"p\",state=\"opted_out\"} 3000x60", "ipam_allocations_in_use{ippool=\"p\",node=\"a\"} 4000x60"];
    IPAMReleasesBraked fires 10 "engaged while it enforces" ["ipam_operator_condition{condition=\"BrakeEngaged\"} 1x60", "ipam_operator_mode{mode=\"enforce\"} 1x60"];
    IPAMReleasesBraked quiet 30 "engaged in audit mode" ["ipam_operator_condition{condition=\"BrakeEngaged\"} 1x60", "ipam_operator_mode{mode=\"enforce\"} 0x60"];
    IPAMReleasesBraked quiet 30 "an allowance is in force" ["ipam_operator_condition{condition=\"BrakeEngaged\"} 0x60", "ipam_operator_condition{condition=\"BrakeAllowed\"} 1x60", "ipam_operator_mode{mode=\"enforce\"} 1x60"];
    IPAMHandlesHeld fires 1450 "held for a day" ["ipam_gc_held_handles{reason=\"in_use\"} 1x1500"];
    IPAMHandlesHeld quiet 1450 "held by an opt-out, or for less than a day" ["ipam_gc_held_handles{reason=\"opted_out\"} 1x1500", "ipam_gc_held_handles{reason=\"in_use\"} 1x1400 0x100"];
    IPAMDepartedNodesStuck fires 130 "a pod still uses an address of a node that is gone" ["ipam_departed_nodes{state=\"in_use\"} 1x200"];
    IPAMDepartedNodesStuck quiet 190 "waiting for the grace, opted out, cooling for 20 minutes" ["ipam_departed_nodes{state=\"grace\"} 3x200", "ipam_departed_nodes{state=\"opted_out\"} 1x200", "ipam_departed_nodes{state=\"cooling\"} 1x20 0x180"];
    IPAMFindings fires 190 "in more than two audits" ["ipam_findings{kind=\"handle-missing\",severity=\"error\"} 1x200"];
    IPAMFindings quiet 240 "in two audits; what is only for information; what has an alert of its own" [
        "ipam_findings{kind=\"handle-missing\",severity=\"error\"} 1x120 0x200", "ipam_findings{kind=\"reserved-allocated\",severity=\"info\"} 1x300", "ipam_findings{kind=\"used-by-other\",severity=\"error\"} 1x300"];
    IPAMOperatorAbsent fires 20 "both are down" ["up{pod=\"a\"} 0x60", "up{pod=\"b\"} 0x60"];
    IPAMOperatorAbsent fires 20 "nothing is scraped" [];
    IPAMOperatorAbsent quiet 40 "one of two is down" ["up{pod=\"a\"} 0x60", "up{pod=\"b\"} 1x60"];
    IPAMOperatorReplicaDown fires 35 "one is down" ["up{pod=\"a\"} 0x60", "up{pod=\"b\"} 1x60"];
    IPAMOperatorReplicaDown quiet 60 "a rollout" ["up{pod=\"a\"} 0x5 1x60", "up{pod=\"b\"} 1x60"];
    IPAMOperatorLeaderless fires 10 "both are passive" ["ipam_operator_leader{pod=\"a\"} 0x60", "ipam_operator_leader{pod=\"b\"} 0x60"];
    IPAMOperatorLeaderless quiet 20 "a hand-over" ["ipam_operator_leader{pod=\"a\"} 1x5 0x60", "ipam_operator_leader{pod=\"b\"} 0x6 1x60"];
    IPAMOperatorLeaderless quiet 20 "none is there, which has its own alert" [];
    IPAMOperatorTwoLeaders fires 10 "both lead" ["ipam_operator_leader{pod=\"a\"} 1x60", "ipam_operator_leader{pod=\"b\"} 1x60"];
    IPAMOperatorTwoLeaders quiet 20 "for one scrape both do" ["ipam_operator_leader{pod=\"a\"} 1x6 0x60", "ipam_operator_leader{pod=\"b\"} 0x5 1x60"];
    IPAMOperatorNoClusterSeries fires 20 "up, and no series of the cluster" ["up 1x60"];
    IPAMOperatorNoClusterSeries quiet 40 "up, with series" ["up 1x60", "ipam_ippool_size{ippool=\"p\"} 256x60"];
    IPAMOperatorNoClusterSeries quiet 40 "not up at all" ["up 0x60"];
    IPAMOperatorStale fires 45 "the last good pass was at the beginning" [
        "ipam_operator_last_successful_pass_timestamp_seconds 0x60", "ipam_operator_condition{condition=\"Synced\"} 1x60", "ipam_operator_condition{condition=\"DatastoreReady\"} 1x60"];
    IPAMOperatorStale quiet 60 "an idle cluster: idle passes count" [
        "ipam_operator_last_successful_pass_timestamp_seconds 0+60x70", "ipam_operator_condition{condition=\"Synced\"} 1x70", "ipam_operator_condition{condition=\"DatastoreReady\"} 1x70"];
    IPAMOperatorStale quiet 60 "the datastore is locked" [
        "ipam_operator_last_successful_pass_timestamp_seconds 0x70", "ipam_operator_condition{condition=\"Synced\"} 1x70", "ipam_operator_condition{condition=\"DatastoreReady\"} 0x70"];
    IPAMOperatorNotSynced fires 20 "pods are not known on one replica" ["ipam_operator_watch_synced{kind=\"pod\",pod=\"a\"} 1x60", "ipam_operator_watch_synced{kind=\"pod\",pod=\"b\"} 0x60"];
    IPAMOperatorNotSynced quiet 40 "at the start" ["ipam_operator_watch_synced{kind=\"pod\"} 0x3 1x60"];
    IPAMOperatorWritesForbidden fires 20 "one may not write, the other has not tried" [
        "ipam_operator_condition{condition=\"WritesPermitted\",pod=\"a\"} 0x60", "ipam_operator_condition{condition=\"WritesPermitted\",pod=\"b\"} 1x60", "ipam_operator_mode{mode=\"enforce\"} 1x60"];
    IPAMOperatorWritesForbidden quiet 40 "for the time of an upgrade; and in audit mode" [
        "ipam_operator_condition{condition=\"WritesPermitted\"} 0x5 1x60", "ipam_operator_mode{mode=\"enforce\"} 1x60"];
    IPAMOperatorWritesForbidden quiet 40 "in audit mode" ["ipam_operator_condition{condition=\"WritesPermitted\"} 0x60", "ipam_operator_mode{mode=\"enforce\"} 0x60"];
    IPAMOperatorReleasesFailing fires 60 "some fail every minute" ["ipam_gc_failures_total{action=\"release-address\",class=\"refused\"} 0+1x120"];
    IPAMOperatorReleasesFailing quiet 60 "the API server was restarted" ["ipam_gc_failures_total{action=\"release-address\",class=\"unavailable\"} 0x10 0+5x5 25x100"];
    IPAMOperatorReleasesFailing quiet 60 "what is forbidden has its own alert" ["ipam_gc_failures_total{action=\"release-address\",class=\"forbidden\"} 0+1x120"];
    IPAMOperatorConfigRejected fires 20 "on one replica" ["ipam_operator_config_last_reload_successful{pod=\"a\"} 0x60", "ipam_operator_config_last_reload_successful{pod=\"b\"} 1x60"];
    IPAMOperatorConfigRejected quiet 40 "old pods see the new file for a while" ["ipam_operator_config_last_reload_successful 0x10 1x60"];
    IPAMConfigInvalid fires 12 "not valid" ["ipam_operator_condition{condition=\"IPAMConfigValid\"} 0x60"];
    IPAMConfigInvalid quiet 40 "valid, while another condition is 0" ["ipam_operator_condition{condition=\"IPAMConfigValid\"} 1x60", "ipam_operator_condition{condition=\"Synced\"} 0x60"];
    IPAMDatastoreLocked fires 65 "for more than an hour" ["ipam_operator_condition{condition=\"DatastoreReady\"} 0x120"];
    IPAMDatastoreLocked quiet 100 "a planned lock" ["ipam_operator_condition{condition=\"DatastoreReady\"} 0x50 1x60"];
    IPAMOperatorPaused fires 1450 "for a day" ["ipam_operator_condition{condition=\"Paused\"} 1x1500"];
    IPAMOperatorPaused quiet 1450 "for an hour" ["ipam_operator_condition{condition=\"Paused\"} 1x60 0x1500"];
    IPAMOperatorRestarting fires 60 "every ten minutes" ["process_start_time_seconds 0x9 600x9 1200x9 1800x9 2400x9 3000x9 3600x9"];
    IPAMOperatorRestarting quiet 60 "a rollout: other pods" ["process_start_time_seconds{pod=\"a\"} 0x60", "process_start_time_seconds{pod=\"b\"} _x20 1200x60", "process_start_time_seconds{pod=\"c\"} _x20 1300x60"];
    IPAMOperatorClockSkew fires 15 "31 s behind" ["ipam_operator_clock_skew_seconds -31x60"];
    IPAMOperatorClockSkew quiet 40 "30 s" ["ipam_operator_clock_skew_seconds 30x60"];
    IPAMOtherCollectorActive fires 65 "both collect" ["ipam_operator_condition{condition=\"OtherCollectorActive\"} 1x120", "ipam_operator_mode{mode=\"enforce\"} 1x120"];
    IPAMOtherCollectorActive quiet 100 "only the other one does, or its grace is 0" ["ipam_operator_condition{condition=\"OtherCollectorActive\",pod=\"a\"} 0x120", "ipam_operator_mode{mode=\"enforce\"} 1x120"];
    IPAMOtherCollectorActive quiet 100 "this one only looks" ["ipam_operator_condition{condition=\"OtherCollectorActive\"} 1x120", "ipam_operator_mode{mode=\"enforce\"} 0x120"];
}
