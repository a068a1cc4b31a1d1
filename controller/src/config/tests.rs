//! Sources and their order, what is refused and in which words, and what a change of the file does.

use std::io::Write as _;

use serde_json::json;

use super::file::Configured;
use super::keys::{KEYS, go_text};
use super::show::{lines, schema, table};
use super::*;

const HEAD: &str = "apiVersion: ipam-operator/v1\nkind: OperatorConfig\n";

fn given(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Given {
    Given {
        flags: flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect(),
        variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
    }
}

fn of_file(body: &str) -> Result<OperatorConfig, String> {
    let text = format!("{HEAD}{body}");
    let values = Values::gather(&Given::default(), Some(("f.yaml", &text))).map_err(|e| e.to_string())?;
    OperatorConfig::of(&values, Time::UNIX_EPOCH).map_err(|e| e.to_string())
}

#[test]
fn every_default_is_valid_and_the_typed_ones_say_the_same() {
    let config = OperatorConfig::default();
    assert_eq!((config.mode, config.paused, config.leak_grace, config.lease.is_none()), (Mode::Enforce, false, None, true));
    assert_eq!((config.brake, config.departed, config.rate), (Limit::default(), Mass::default(), Rate::default()));
    for key in KEYS {
        assert!(key.kind.check(&key.default_value()).is_ok(), "{}", key.path);
    }
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let file = format!("{HEAD}gc:\n  vmGracePeriod: 7m\n  auditInterval: 2h\nbrake:\n  maxShare: 0.7\n");
    let given = given(&[("gc.vmGracePeriod", "9m")], &[("IPAM_OPERATOR_AUDIT_INTERVAL", "3h"), ("IPAM_OPERATOR_BRAKE_MAX_SHARE", "")]);
    let values = Values::gather(&given, Some(("f.yaml", &file))).expect("valid");
    let source = |path: &str| values.get(path).1.to_string();
    assert_eq!(source("gc.vmGracePeriod"), "flag --vm-grace-period");
    assert_eq!(source("gc.auditInterval"), "env IPAM_OPERATOR_AUDIT_INTERVAL");
    assert_eq!(source("brake.maxShare"), "file f.yaml", "an empty variable says nothing");
    assert_eq!(source("mode"), "default");
    assert!(values.notes["gc.vmGracePeriod"].contains("overridden"));
    let config = OperatorConfig::of(&values, Time::UNIX_EPOCH).expect("fits");
    assert_eq!((config.vm_floor, config.audit_interval), (TimeDelta::minutes(9), TimeDelta::hours(3)));
    let table = table(&lines(&values, None));
    assert!(
        table.lines().any(|l| l.starts_with("gc.vmGracePeriod") && l.contains("9m") && l.contains("flag --vm-grace-period")),
        "{table}"
    );
}

#[test]
fn d_6_what_the_cluster_says_is_shown_where_nobody_said_anything() {
    let values = Values::gather(&Given::default(), None).expect("valid");
    let settings = |leak_grace| Some(ipam_datastore::update::Settings { leak_grace, unclear: false, other_collector: false });
    let of = |settings| lines(&values, settings).into_iter().find(|l| l.key == "gc.leakGracePeriod").expect("there");
    let line = of(settings(Some(TimeDelta::minutes(90))));
    assert_eq!((line.value, line.source.to_string().as_str()), (json!("1h30m"), "KubeControllersConfiguration/default"));
    assert_eq!(of(settings(None)).note, "leak collection is off");
    assert_eq!(of(None).source, Source::Default);
}

#[test]
fn what_is_wrong_is_said_with_key_value_range_and_the_nearest_name() {
    for (body, want) in [
        ("gc:\n  leakGrace: 5m\n", "gc.leakGrace: there is no such key; did you mean gc.leakGracePeriod?"),
        ("brakes:\n  maxShare: 1\n", "brakes: there is no such key; did you mean brake?"),
        ("brake:\n  maxShare: 7\n", "brake.maxShare (file f.yaml): 7 is not a number from 0.01 to 1"),
        ("brake:\n  minAddresses: 0\n", "is not a whole number from 1 to 1000000"),
        ("gc:\n  leakGracePeriod: 15\n", "gc.leakGracePeriod (file f.yaml): 15 is not null, 0s, a duration from 1s to 168h"),
        ("gc:\n  vmGracePeriod: 0s\n", "is not a duration from 1s to 168h"),
        ("mode: watch\n", "\"watch\" is not one of enforce, audit"),
        ("paused: \"yes\"\n", "\"yes\" is not true or false"),
        ("mode: audit\nmode: enforce\n", "duplicate"),
        ("optOut:\n  cidrs: [10.0.0.0/33]\n", "is not a list of CIDRs or addresses"),
        ("server:\n  listen: localhost\n", "is not address:port"),
        ("server: 9094\n", "server: 9094 is no map of keys"),
        ("log:\n  level: \"=\"\n", "log.level"),
        ("brake:\n  allow: {upTo: 3}\n", "brake.allow"),
        ("brake:\n  allow: {upTo: 3, until: 1970-01-02T00:00:01Z}\n", "until is more than 24h ahead"),
        ("server:\n  adminListen: 0.0.0.0:9095\n", "is no loopback address"),
        ("server:\n  tls: {certFile: /a}\n", "both or not at all"),
        ("leaderElection: {leaseDuration: 5s, grace: 5s}\n", "must be shorter"),
    ] {
        let e = of_file(body).expect_err(body);
        assert!(e.contains(want), "{body}\n{e}");
    }
    let missing = Values::gather(&Given::default(), Some(("f", "mode: audit\n"))).expect_err("no head").to_string();
    assert!(missing.contains("apiVersion: is missing") && missing.contains("kind: is missing"), "{missing}");
    let type_ = Values::gather(&given(&[], &[("DATASTORE_TYPE", "etcdv3")]), None).expect_err("etcd").to_string();
    assert!(type_.contains("DATASTORE_TYPE"), "{type_}");
}

#[test]
fn what_is_said_arrives() {
    let config = of_file(
        "mode: audit\nserver: {adminListen: \"0.0.0.0:1\", allowRemoteAdmin: true}\noptOut: {cidrs: [10.0.0.7, \"fd00::/120\"], pools: [p]}\n\
         brake: {allow: {upTo: 812, until: 1970-01-01T12:00:00Z}, departed: {minNodes: 3}}\ndatastore: {apiGroup: v1}\ngc: {leakGracePeriod: 0s, kubevirt: \"off\"}\n",
    )
    .expect("valid");
    assert_eq!(config.allow, Some(Allowance { up_to: 812, until: Time::UNIX_EPOCH + TimeDelta::hours(12) }));
    assert_eq!((config.mode, config.api_group, config.departed.nodes), (Mode::Audit, Some(Group::V1), 3));
    assert_eq!((config.leak_grace, config.kubevirt), (Some(TimeDelta::zero()), false));
    let calico = Values::gather(&given(&[], &[("CALICO_API_GROUP", "projectcalico.org/v3")]), None).expect("valid");
    assert_eq!(OperatorConfig::of(&calico, Time::UNIX_EPOCH).expect("fits").api_group, Some(Group::V3));
    assert_eq!(calico.get("datastore.apiGroup").1.to_string(), "env CALICO_API_GROUP");
}

#[test]
fn a_changed_file_is_taken_over_whole_or_not_at_all() {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    let mut write = |body: &str| {
        file.as_file_mut().set_len(0).expect("cut");
        std::io::Seek::rewind(&mut file).expect("rewound");
        write!(file, "{HEAD}{body}").expect("written");
        file.path().to_path_buf()
    };
    let path = write("paused: false\n");
    let now = Time::UNIX_EPOCH;
    let (mut configured, config) = Configured::first(given(&[("mode", "audit")], &[]), Some(path), now).expect("valid");
    assert!(!config.paused);
    assert!(matches!(configured.look(now), Reload::Same));

    write("paused: true\nlog: {format: json}\nmode: enforce\n");
    let Reload::Taken(config, changed, restart) = configured.look(now) else { panic!("taken") };
    assert!(config.paused && !config.log_json, "a key that needs a restart keeps its value");
    assert_eq!((config.mode, changed, restart), (Mode::Audit, vec!["paused"], vec!["log.format"]), "the flag still wins");

    write("paused: false\nbrake: {maxShare: 9}\n");
    let Reload::Rejected(why) = configured.look(now) else { panic!("rejected") };
    assert!(why.contains("brake.maxShare"), "{why}");
    assert!(matches!(configured.look(now), Reload::Same), "said once");
    assert_eq!(configured.values.get("paused").0, json!(true), "not a part of it");

    write("paused: false\n");
    assert!(matches!(configured.look(now), Reload::Taken(config, ..) if !config.paused));
    assert_eq!(configured.rejected, None);
}

#[test]
fn durations_are_written_as_go_writes_them() {
    let of = |seconds| go_text(TimeDelta::seconds(seconds));
    assert_eq!([of(0), of(900), of(5400), of(3661), of(604_800)], ["0s", "15m", "1h30m", "1h1m1s", "168h"]);
}

#[test]
fn the_schema_knows_every_key() {
    let schema = schema();
    for key in KEYS {
        let at = format!("/properties/{}", key.path.replace('.', "/properties/"));
        assert!(schema.pointer(&at).is_some_and(|s| s["description"].is_string()), "{}", key.path);
    }
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn flags_and_their_variables() {
    use clap::Parser as _;
    let parse = |args: &[&str]| match crate::args::Cli::try_parse_from(["ipam-operator", "run"].iter().chain(args)) {
        Ok(crate::args::Cli { command: crate::args::What::Run(run) }) => Ok(run.sources.given().flags),
        Ok(_) => panic!("run"),
        Err(e) => Err(e.to_string()),
    };
    assert_eq!(parse(&["--paused", "--mode", "audit"]).expect("fine")["paused"], "true");
    assert_eq!(parse(&["--leader-elect=false"]).expect("fine")["leaderElection.enabled"], "false");
    assert!(parse(&["--pause"]).is_err());
    assert_eq!(keys::key("release.perSecond").and_then(|k| k.variable()).as_deref(), Some("IPAM_OPERATOR_RELEASES_PER_SECOND"));
}
