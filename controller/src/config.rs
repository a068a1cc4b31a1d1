//! The configuration (operator.md a): flags, environment, a file that is followed live, what the cluster says, defaults.
//!
//! [`keys`] is the list of what there is; everything else, flags, `ipam-operator config`, schema of the chart, follows from it.

pub mod file;
pub mod keys;
pub mod show;
pub mod sources;

use std::path::PathBuf;
use std::time::Duration;

use chrono::TimeDelta;
use ipam_accounting::schedule::Time;
use ipam_datastore::Group;
use ipam_datastore::text::go_duration;
use serde_json::Value;

pub use self::file::Reload;
pub use self::sources::{ConfigError, Given, Source, Values};
use crate::plan::{Allowance, Limit, Mass, Mode, OptOuts, Rate};

/// A brake allowance may reach at most this far ahead.
const LONGEST_ALLOWANCE: TimeDelta = TimeDelta::hours(24);

/// What is done about rows that contradict the blocks (D-18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexRepair {
    /// Nothing is looked at.
    Off,
    /// It is told.
    Report,
    /// It is repaired after two observations a grace apart.
    Repair,
}

/// How Kubernetes events are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Events {
    /// At all.
    pub enabled: bool,
    /// At most one of a kind about an object in so long.
    pub interval: TimeDelta,
    /// Share taken from which a pool is called nearly full.
    pub nearly_full: f64,
}

/// Which Lease, and how it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub name: String,
    /// Its namespace; empty: that of the pod.
    pub namespace: String,
    /// How long it holds.
    pub duration: Duration,
    /// So long before its end it is renewed.
    pub grace: Duration,
}

/// Everything that a run obeys.
#[derive(Clone, Debug, PartialEq)]
pub struct OperatorConfig {
    /// Whether to act.
    pub mode: Mode,
    /// Write nothing.
    pub paused: bool,
    /// API group; `None`: asked of the cluster.
    pub api_group: Option<Group>,
    /// The only cluster to work on; empty: any.
    pub cluster_guid: String,
    /// Requests at once.
    pub max_in_flight: usize,
    /// Grace period; `None`: what the cluster says, else 15 min.
    pub leak_grace: Option<TimeDelta>,
    /// VM floor.
    pub vm_floor: TimeDelta,
    /// How often everything is looked at; `None`: by the grace.
    pub full_scan: Option<TimeDelta>,
    /// Whether VMs are followed.
    pub kubevirt: bool,
    /// What is done about rows.
    pub index_repair: IndexRepair,
    /// How often rows are looked at.
    pub audit_interval: TimeDelta,
    /// How quickly addresses go.
    pub rate: Rate,
    /// When the brake engages.
    pub brake: Limit,
    /// What may pass it.
    pub allow: Option<Allowance>,
    /// When many nodes vanish together.
    pub departed: Mass,
    /// What is not released.
    pub opt_outs: OptOuts,
    /// Events.
    pub events: Events,
    /// Series by pool and node that say 0 are shown.
    pub zeros: bool,
    /// Level or filter of the log.
    pub log_level: String,
    /// The log is JSON.
    pub log_json: bool,
    /// Where metrics and probes are served.
    pub listen: String,
    /// Where explanations are served; empty: nowhere.
    pub admin_listen: String,
    /// Certificate and key of `listen`.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The Lease; `None`: there is no other one.
    pub lease: Option<Lease>,
}

impl Default for OperatorConfig {
    fn default() -> Self {
        let values = Values::gather(&Given::default(), None).expect("the defaults are valid");
        Self { lease: None, ..Self::of(&values, Time::UNIX_EPOCH).expect("the defaults fit together") }
    }
}

impl OperatorConfig {
    /// The values as types, first read at `now`.
    ///
    /// # Errors
    /// Values that do not fit together.
    pub fn of(values: &Values, now: Time) -> Result<Self, ConfigError> {
        let v = Typed(values);
        let files = (PathBuf::from(v.text("server.tls.certFile")), PathBuf::from(v.text("server.tls.keyFile")));
        let config = Self {
            mode: if v.text("mode") == "audit" { Mode::Audit } else { Mode::Enforce },
            paused: v.flag("paused"),
            api_group: keys::group(&v.text("datastore.apiGroup")).flatten(),
            cluster_guid: v.text("datastore.clusterGUID"),
            max_in_flight: v.whole("datastore.maxInFlight") as usize,
            leak_grace: v.duration("gc.leakGracePeriod"),
            vm_floor: v.duration("gc.vmGracePeriod").unwrap_or_default(),
            full_scan: v.duration("gc.fullScanInterval"),
            kubevirt: v.text("gc.kubevirt") == "auto",
            index_repair: match v.text("gc.indexRepair").as_str() {
                "off" => IndexRepair::Off,
                "repair" => IndexRepair::Repair,
                _ => IndexRepair::Report,
            },
            audit_interval: v.duration("gc.auditInterval").unwrap_or_default(),
            rate: v.rate(),
            brake: v.brake(),
            allow: keys::allow(&values.get("brake.allow").0).map(|(up_to, until)| Allowance { up_to, until }),
            departed: v.departed(),
            opt_outs: v.opt_outs(),
            events: v.events(),
            zeros: v.text("metrics.nodeSeries") == "all",
            log_level: v.text("log.level"),
            log_json: v.text("log.format") == "json",
            listen: v.text("server.listen"),
            admin_listen: v.text("server.adminListen"),
            tls: (!files.0.as_os_str().is_empty()).then(|| files.clone()),
            lease: v.flag("leaderElection.enabled").then(|| v.lease()),
        };
        config.fits(&files, v.flag("server.allowRemoteAdmin"), now)?;
        Ok(config)
    }

    fn fits(&self, tls: &(PathBuf, PathBuf), remote_admin: bool, now: Time) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if tls.0.as_os_str().is_empty() != tls.1.as_os_str().is_empty() {
            wrong.push("server.tls: certFile and keyFile are given both or not at all".into());
        }
        if let Some(lease) = &self.lease
            && lease.grace >= lease.duration
        {
            wrong.push("leaderElection.grace: must be shorter than leaderElection.leaseDuration".into());
        }
        let loopback = self.admin_listen.parse::<std::net::SocketAddr>().is_ok_and(|a| a.ip().is_loopback());
        if !self.admin_listen.is_empty() && !loopback && !remote_admin {
            let why = "is no loopback address: whoever reaches it sees names of pods; server.allowRemoteAdmin allows that";
            wrong.push(format!("server.adminListen: {} {why}", self.admin_listen));
        }
        if let Some(allow) = &self.allow
            && allow.until > now + LONGEST_ALLOWANCE
        {
            wrong.push("brake.allow: until is more than 24h ahead".into());
        }
        if wrong.is_empty() { Ok(()) } else { Err(ConfigError(wrong)) }
    }
}

/// Values, which were checked, as types.
struct Typed<'a>(&'a Values);

impl Typed<'_> {
    fn value(&self, path: &str) -> &Value {
        &self.0.get(path).0
    }

    fn text(&self, path: &str) -> String {
        self.value(path).as_str().unwrap_or_default().to_owned()
    }

    fn flag(&self, path: &str) -> bool {
        self.value(path).as_bool().unwrap_or_default()
    }

    fn whole(&self, path: &str) -> u64 {
        self.value(path).as_u64().unwrap_or_default()
    }

    fn share(&self, path: &str) -> f64 {
        self.value(path).as_f64().unwrap_or_default()
    }

    fn duration(&self, path: &str) -> Option<TimeDelta> {
        self.value(path).as_str().and_then(go_duration)
    }

    fn names(&self, path: &str) -> Vec<String> {
        self.value(path).as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    fn rate(&self) -> Rate {
        let per_pass = self.whole("release.maxPerPass") as usize;
        Rate { per_second: self.whole("release.perSecond"), burst: self.whole("release.burst"), per_pass }
    }

    fn brake(&self) -> Limit {
        let window = self.duration("brake.window").unwrap_or_default();
        Limit { share: self.share("brake.maxShare"), addresses: self.whole("brake.minAddresses"), window }
    }

    fn departed(&self) -> Mass {
        let window = self.duration("brake.departed.window").unwrap_or_default();
        Mass { share: self.share("brake.departed.maxShare"), nodes: self.whole("brake.departed.minNodes") as usize, window }
    }

    fn opt_outs(&self) -> OptOuts {
        let [pools, namespaces, nodes, cidrs] = ["pools", "namespaces", "nodes", "cidrs"].map(|what| self.names(&format!("optOut.{what}")));
        OptOuts::configured(pools, namespaces, nodes, cidrs.iter().filter_map(|t| keys::cidr(t)))
    }

    fn events(&self) -> Events {
        let interval = self.duration("events.interval").unwrap_or_default();
        Events { enabled: self.flag("events.enabled"), interval, nearly_full: self.share("events.poolNearlyFull") }
    }

    fn lease(&self) -> Lease {
        let short = |path| self.duration(path).unwrap_or_default().to_std().unwrap_or_default();
        Lease {
            name: self.text("leaderElection.leaseName"),
            namespace: self.text("leaderElection.leaseNamespace"),
            duration: short("leaderElection.leaseDuration"),
            grace: short("leaderElection.grace"),
        }
    }
}

#[cfg(test)]
mod tests;
