//! Every key of the configuration: path, type and range, default, whether it is obeyed live, flag.

use chrono::TimeDelta;
use ipam_datastore::Group;
use ipam_datastore::text::{go_duration, time};
use ipnet::IpNet;
use serde_json::{Value, json};

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Where it is in the file.
    pub path: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Its default, as the file would say it.
    pub default: &'static str,
    /// A change is obeyed without a restart.
    pub live: bool,
    /// Its flag without dashes; the environment variable is named after it.
    pub flag: Option<&'static str>,
    /// What it is, in a sentence.
    pub help: &'static str,
}

/// What a key may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// One of these.
    OneOf(&'static [&'static str]),
    /// API group: `auto`, or how the environment variable of Calico says it.
    Group,
    /// Any text.
    Text,
    /// A DNS name, or nothing.
    DnsName,
    /// A whole number.
    Whole(u64, u64),
    /// A number.
    Share(f64, f64),
    /// A Go duration.
    Duration(Span),
    /// Names.
    Names,
    /// CIDRs or addresses.
    Cidrs,
    /// `null`, or how much may pass the brake until when.
    Allow,
    /// `address:port`; where `true`, nothing too.
    Endpoint(bool),
    /// A level or filter directives of the log.
    LogLevel,
}

/// Range of a duration, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    least: i64,
    most: i64,
    zero: bool,
    none: bool,
    /// Shorter ones are unwise.
    short: i64,
}

const fn span(least: i64, most: i64) -> Span {
    Span { least, most, zero: false, none: false, short: 0 }
}

const HOUR: i64 = 3600;
const WEEK: i64 = 168 * HOUR;

macro_rules! keys {
    ($($path:literal $kind:expr, $default:literal, $live:ident, $flag:expr, $help:literal;)*) => {
        /// All of them, in the order in which they are shown.
        pub const KEYS: &[Key] = &[$(Key { path: $path, kind: $kind, default: $default, live: keys!(@$live), flag: $flag, help: $help }),*];
    };
    (@live) => { true };
    (@restart) => { false };
}

keys! {
    "mode" Kind::OneOf(&["enforce", "audit"]), "enforce", live, Some("mode"), "Whether to act, or only to show.";
    "paused" Kind::Flag, "false", live, Some("paused"), "Writes nothing; timers and metrics go on.";
    "datastore.apiGroup" Kind::Group, "auto", restart, Some("api-group"), "API group of the IPAM objects; auto: CALICO_API_GROUP, else asked of the cluster.";
    "datastore.clusterGUID" Kind::Text, "\"\"", live, Some("cluster-guid"), "The only cluster to work on, by the GUID of its ClusterInformation; empty: any.";
    "datastore.maxInFlight" Kind::Whole(1, 64), "16", restart, Some("max-in-flight"), "Requests at once of a last look, and of the writes that follow it.";
    "gc.leakGracePeriod" Kind::Duration(Span { zero: true, none: true, short: 60, ..span(1, WEEK) }), "null", live, Some("leak-grace-period"),
        "How long an address must be leaked before it is given back; 0s: that is off; null: what KubeControllersConfiguration says, else 15m.";
    "gc.vmGracePeriod" Kind::Duration(Span { short: 300, ..span(1, WEEK) }), "5m", live, Some("vm-grace-period"), "Shortest such time for addresses of VMs.";
    "gc.fullScanInterval" Kind::Duration(Span { none: true, ..span(30, 15 * 60) }), "null", live, Some("full-scan-interval"),
        "How often everything is looked at; null: half the grace period, at most 15m, and 5m while collection is off.";
    "gc.kubevirt" Kind::OneOf(&["auto", "off"]), "auto", restart, Some("kubevirt"), "Whether VMs are followed; off: their addresses stay.";
    "gc.indexRepair" Kind::OneOf(&["off", "report", "repair"]), "report", live, Some("index-repair"), "What is done about rows that contradict the blocks.";
    "gc.auditInterval" Kind::Duration(span(300, 24 * HOUR)), "1h", live, Some("audit-interval"), "How often rows are held against the blocks.";
    "release.perSecond" Kind::Whole(0, 1000), "50", live, Some("releases-per-second"), "Leaked addresses given back a second; 0: no limit.";
    "release.burst" Kind::Whole(1, 10_000), "500", live, Some("release-burst"), "So many may go at once.";
    "release.maxPerPass" Kind::Whole(100, 10_000), "10000", live, Some("max-releases-per-pass"), "At most so many in a pass; handles stay whole.";
    "brake.maxShare" Kind::Share(0.01, 1.0), "0.5", live, Some("brake-max-share"), "Share of the addresses of pods and VMs above which nothing of them is released; 1: no such limit.";
    "brake.minAddresses" Kind::Whole(1, 1_000_000), "100", live, Some("brake-min-addresses"), "So many addresses must be concerned for that.";
    "brake.window" Kind::Duration(Span { zero: true, ..span(1, 24 * HOUR) }), "1h", live, Some("brake-window"), "Releases of so long before count along.";
    "brake.allow" Kind::Allow, "null", live, None, "Lets so many addresses pass the brake until then: {upTo: 812, until: 2026-11-30T12:00:00Z}.";
    "brake.departed.maxShare" Kind::Share(0.01, 1.0), "0.5", live, None, "More of the nodes than this that vanish together are no fact yet.";
    "brake.departed.minNodes" Kind::Whole(1, 10_000), "10", live, None, "So many nodes must be concerned for that.";
    "brake.departed.window" Kind::Duration(span(60, HOUR)), "10m", live, None, "Nodes that vanish within so long count together.";
    "optOut.pools" Kind::Names, "[]", live, None, "Pools of which nothing is released.";
    "optOut.namespaces" Kind::Names, "[]", live, None, "Namespaces of whose owners nothing is released.";
    "optOut.nodes" Kind::Names, "[]", live, None, "Nodes of which nothing is released.";
    "optOut.cidrs" Kind::Cidrs, "[]", live, None, "Addresses that are not released.";
    "events.enabled" Kind::Flag, "true", live, Some("events"), "Whether Kubernetes events are sent.";
    "events.interval" Kind::Duration(span(60, HOUR)), "5m", live, None, "At most one event of a kind about an object in so long.";
    "events.poolNearlyFull" Kind::Share(0.5, 0.99), "0.9", live, None, "Share taken from which a pool is called nearly full.";
    "metrics.nodeSeries" Kind::OneOf(&["all", "nonzero"]), "all", live, Some("metrics-node-series"), "nonzero drops series by pool and node that only say 0.";
    "log.level" Kind::LogLevel, "info", live, Some("log-level"), "error, warn, info, debug, trace, or filter directives.";
    "log.format" Kind::OneOf(&["text", "json"]), "text", restart, Some("log-format"), "How the log is written.";
    "server.listen" Kind::Endpoint(false), "127.0.0.1:9094", restart, Some("listen"), "Where metrics and probes are served.";
    "server.adminListen" Kind::Endpoint(true), "127.0.0.1:9095", restart, Some("admin-listen"), "Where explanations, status and configuration are served; empty: nowhere.";
    "server.allowRemoteAdmin" Kind::Flag, "false", restart, Some("allow-remote-admin"), "Lets server.adminListen be no loopback address.";
    "server.tls.certFile" Kind::Text, "\"\"", restart, Some("tls-cert-file"), "Certificate of server.listen; read again when it changes.";
    "server.tls.keyFile" Kind::Text, "\"\"", restart, Some("tls-key-file"), "Its key.";
    "leaderElection.enabled" Kind::Flag, "true", restart, Some("leader-elect"), "Only one of several works; not with --load.";
    "leaderElection.leaseName" Kind::DnsName, "ipam-operator", restart, Some("lease-name"), "Name of the Lease.";
    "leaderElection.leaseNamespace" Kind::DnsName, "\"\"", restart, Some("lease-namespace"), "Its namespace; empty: POD_NAMESPACE.";
    "leaderElection.leaseDuration" Kind::Duration(span(5, 60)), "10s", restart, Some("lease-duration"), "How long a Lease holds that is not renewed.";
    "leaderElection.grace" Kind::Duration(span(1, 30)), "4s", restart, Some("lease-grace"), "So long before its end a Lease is renewed; shorter than the Lease.";
}

/// The key of a path.
pub fn key(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.path == path)
}

impl Key {
    /// Its environment variable.
    pub fn variable(&self) -> Option<String> {
        self.flag.map(|f| format!("IPAM_OPERATOR_{}", f.replace('-', "_").to_uppercase()))
    }

    /// Its default as a value.
    pub fn default_value(&self) -> Value {
        match self.default {
            "null" => Value::Null,
            "[]" => json!([]),
            "\"\"" => json!(""),
            text => self.kind.from_text(text).unwrap_or_else(|| panic!("the default of {} is {text:?}", self.path)),
        }
    }
}

impl Kind {
    /// What a flag or variable says, as a file would say it.
    pub fn from_text(self, text: &str) -> Option<Value> {
        Some(match self {
            Kind::Flag => json!(matches!(text, "true" | "1")).as_bool().filter(|b| *b || matches!(text, "false" | "0"))?.into(),
            Kind::Whole(..) => text.parse::<u64>().ok()?.into(),
            Kind::Share(..) => json!(text.parse::<f64>().ok()?),
            _ => json!(text),
        })
    }

    /// Whether a value is one.
    ///
    /// # Errors
    /// What is allowed, in words.
    pub fn check(self, value: &Value) -> Result<(), String> {
        let text = value.as_str();
        let texts = || value.as_array().and_then(|all| all.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        let ok = match self {
            Kind::Flag => value.is_boolean(),
            Kind::OneOf(words) => text.is_some_and(|t| words.contains(&t)),
            Kind::Group => text.is_some_and(|t| group(t).is_some()),
            Kind::Text => text.is_some(),
            Kind::DnsName => text.is_some_and(|t| t.is_empty() || dns_name(t)),
            Kind::Whole(least, most) => value.as_u64().is_some_and(|n| (least..=most).contains(&n)),
            Kind::Share(least, most) => value.as_f64().is_some_and(|n| (least..=most).contains(&n)),
            Kind::Duration(span) => (span.none && value.is_null()) || text.and_then(go_duration).is_some_and(|d| span.has(d)),
            Kind::Names => texts().is_some_and(|all| all.iter().all(|t| !t.is_empty())),
            Kind::Cidrs => texts().is_some_and(|all| all.iter().all(|t| cidr(t).is_some())),
            Kind::Allow => value.is_null() || allow(value).is_some(),
            Kind::Endpoint(off) => text.is_some_and(|t| (off && t.is_empty()) || t.parse::<std::net::SocketAddr>().is_ok()),
            Kind::LogLevel => text.is_some_and(|t| !t.is_empty() && tracing_subscriber::EnvFilter::try_new(t).is_ok()),
        };
        if ok { Ok(()) } else { Err(self.allowed()) }
    }

    /// What is unwise about a value that is allowed.
    pub fn warning(self, value: &Value) -> Option<String> {
        let Kind::Duration(span) = self else { return None };
        let given = value.as_str().and_then(go_duration)?;
        let short = TimeDelta::seconds(span.short);
        (given > TimeDelta::zero() && given < short).then(|| format!("shorter than {}", go_text(short)))
    }

    /// What is allowed, in words.
    pub fn allowed(self) -> String {
        match self {
            Kind::Flag => "true or false".into(),
            Kind::OneOf(words) => format!("one of {}", words.join(", ")),
            Kind::Group => "one of auto, v1, v3".into(),
            Kind::Text => "a text".into(),
            Kind::DnsName => "a DNS name".into(),
            Kind::Whole(least, most) => format!("a whole number from {least} to {most}"),
            Kind::Share(least, most) => format!("a number from {least} to {most}"),
            Kind::Duration(s) => {
                let seconds = |n| go_text(TimeDelta::seconds(n));
                let more = [(s.none, "null, "), (s.zero, "0s, ")].map(|(yes, word)| if yes { word } else { "" });
                format!("{}{}a duration from {} to {}", more[0], more[1], seconds(s.least), seconds(s.most))
            }
            Kind::Names => "a list of names".into(),
            Kind::Cidrs => "a list of CIDRs or addresses".into(),
            Kind::Allow => "null, or {upTo: 1 to 1000000, until: a time as RFC 3339 says it}".into(),
            Kind::Endpoint(off) => format!("address:port{}", if off { ", or empty" } else { "" }),
            Kind::LogLevel => "error, warn, info, debug, trace, or filter directives".into(),
        }
    }
}

impl Span {
    fn has(&self, d: TimeDelta) -> bool {
        (self.zero && d.is_zero()) || (TimeDelta::seconds(self.least)..=TimeDelta::seconds(self.most)).contains(&d)
    }
}

/// The group that a text names; `None` within: ask the cluster.
pub fn group(text: &str) -> Option<Option<Group>> {
    match text {
        "auto" => Some(None),
        "v1" => Some(Some(Group::V1)),
        "v3" => Some(Some(Group::V3)),
        name => Group::named(name).ok().map(Some),
    }
}

/// A CIDR, or an address as one.
pub fn cidr(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().ok().map(|net| net.trunc()).or_else(|| text.parse::<std::net::IpAddr>().ok().map(IpNet::from))
}

/// How much may pass the brake, and until when.
pub fn allow(value: &Value) -> Option<(u64, ipam_accounting::schedule::Time)> {
    let map = value.as_object().filter(|m| m.len() == 2)?;
    let up_to = map.get("upTo")?.as_u64().filter(|n| (1..=1_000_000).contains(n))?;
    Some((up_to, time(map.get("until")?.as_str()?).ok()?))
}

fn dns_name(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    text.len() <= 253
        && text.split('.').all(|label| {
            label.len() <= 63
                && end(label.chars().next())
                && end(label.chars().last())
                && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

/// A duration as Go writes it, without the zeros: `1h30m`, `15m`, `0s`.
pub fn go_text(d: TimeDelta) -> String {
    let (h, m, s) = (d.num_hours(), d.num_minutes() % 60, d.num_seconds() % 60);
    let millis = d.num_milliseconds() % 1000;
    let part = |n: i64, unit: &str| if n == 0 { String::new() } else { format!("{n}{unit}") };
    let text = format!("{}{}{}{}", part(h, "h"), part(m, "m"), part(s, "s"), part(millis, "ms"));
    if text.is_empty() { "0s".into() } else { text }
}
