//! The configuration in force, shown.

use std::fmt::Write as _;

use ipam_datastore::update::Settings;
use serde_json::{Map, Value, json};

use super::keys::{KEYS, Key, Kind, go_text};
use super::{Source, Values};

/// One line of what is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
    /// Where it is from.
    pub source: Source,
    /// What else is to be said.
    pub note: String,
}

/// Every key; what the cluster says takes the place of a grace period that nobody gave (D-6).
pub fn lines(values: &Values, settings: Option<Settings>) -> Vec<Line> {
    let line = |key: &Key| {
        let (value, source) = values.get(key.path).clone();
        let note = values.notes.get(key.path).cloned().unwrap_or_default();
        let mut line = Line { key: key.path, value, source, note };
        if let ("gc.leakGracePeriod", Value::Null, Some(settings)) = (key.path, &line.value, settings) {
            let grace = settings.leak_grace.unwrap_or_default();
            (line.value, line.source) = (go_text(grace).into(), Source::Cluster);
            if grace.is_zero() {
                line.note = "leak collection is off".into();
            }
        }
        line
    };
    KEYS.iter().map(line).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), |t| if t.is_empty() { "\"\"".into() } else { t.into() })
}

/// As a table for a person.
pub fn table(lines: &[Line]) -> String {
    let rows: Vec<[String; 4]> = lines.iter().map(|l| [l.key.into(), plain(&l.value), l.source.to_string(), l.note.clone()]).collect();
    let head = ["KEY", "VALUE", "SOURCE", "NOTE"].map(str::to_owned);
    let width = |i: usize| rows.iter().chain([&head]).map(|r| r[i].chars().count()).max().unwrap_or_default();
    let widths = [width(0), width(1), width(2)];
    let mut out = String::new();
    for row in [&head].into_iter().chain(&rows) {
        let [key, value, source, note] = row;
        let _ = write!(out, "{key:0$}  {value:1$}  {source:2$}  {note}", widths[0], widths[1], widths[2]);
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// As a list for programs.
pub fn list(lines: &[Line]) -> Value {
    let object = |l: &Line| {
        let mut object = json!({ "key": l.key, "value": l.value, "source": l.source.to_string() });
        if !l.note.is_empty() {
            object["note"] = l.note.as_str().into();
        }
        object
    };
    lines.iter().map(object).collect()
}

/// What a configuration file may hold, as a JSON schema.
pub fn schema() -> Value {
    let mut root = group();
    root["properties"] = json!({
        "apiVersion": { "const": "ipam-operator/v1" },
        "kind": { "const": "OperatorConfig" },
    });
    for key in KEYS {
        let mut place = &mut root;
        let (above, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        for part in above.split('.').filter(|p| !p.is_empty()) {
            place = &mut place["properties"][part];
            if place.is_null() {
                *place = group();
            }
        }
        let mut of = kind(key.kind);
        of["description"] = format!("{} Default: {}.", key.help, plain(&key.default_value())).into();
        place["properties"][name] = of;
    }
    root
}

fn group() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": Map::new() })
}

fn kind(kind: Kind) -> Value {
    const GO_DURATION: &str = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$";
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::OneOf(words) => json!({ "enum": words }),
        Kind::Group => json!({ "enum": ["auto", "v1", "v3", "projectcalico.org/v3", "crd.projectcalico.org/v1"] }),
        Kind::Text | Kind::DnsName | Kind::Endpoint(true) => json!({ "type": "string" }),
        Kind::LogLevel | Kind::Endpoint(false) => json!({ "type": "string", "minLength": 1 }),
        Kind::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Share(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Kind::Duration(_) if kind.check(&Value::Null).is_ok() => json!({ "type": ["string", "null"], "pattern": GO_DURATION }),
        Kind::Duration(_) => json!({ "type": "string", "pattern": GO_DURATION }),
        Kind::Names | Kind::Cidrs => json!({ "type": "array", "items": { "type": "string", "minLength": 1 } }),
        Kind::Allow => json!({
            "type": ["object", "null"],
            "additionalProperties": false,
            "required": ["upTo", "until"],
            "properties": {
                "upTo": { "type": "integer", "minimum": 1, "maximum": 1_000_000 },
                "until": { "type": "string", "format": "date-time" },
            },
        }),
    }
}
