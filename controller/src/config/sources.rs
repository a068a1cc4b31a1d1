//! Where values come from: flags win over the environment, that over the file, that over the defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::{Map, Value};

use super::keys::{KEYS, key};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This flag.
    Flag(&'static str),
    /// This environment variable.
    Variable(String),
    /// The file.
    File(String),
    /// The controllers' configuration of the cluster.
    Cluster,
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Flag(name) => write!(f, "flag --{name}"),
            Source::Variable(name) => write!(f, "env {name}"),
            Source::File(path) => write!(f, "file {path}"),
            Source::Cluster => f.write_str("KubeControllersConfiguration/default"),
            Source::Default => f.write_str("default"),
        }
    }
}

/// Everything that is wrong with a configuration, one thing a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct ConfigError(pub Vec<String>);

/// The values of all keys, and where each is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    values: BTreeMap<&'static str, (Value, Source)>,
    /// What is unwise, or said in the file and overridden.
    pub notes: BTreeMap<&'static str, String>,
}

/// What was said outside of the file.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// By key, what its flag says.
    pub flags: BTreeMap<&'static str, String>,
    /// The environment.
    pub variables: BTreeMap<String, String>,
}

impl Given {
    fn of(&self, key: &super::keys::Key) -> Option<(&str, Source)> {
        if let Some(text) = self.flags.get(key.path) {
            return Some((text, Source::Flag(key.flag?)));
        }
        let name = key.variable()?;
        let text = self.variables.get(&name).filter(|t| !t.is_empty())?;
        Some((text, Source::Variable(name)))
    }
}

impl Values {
    /// Puts all sources together.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn gather(given: &Given, file: Option<(&str, &str)>) -> Result<Self, ConfigError> {
        let mut wrong = Vec::new();
        let (mut values, mut notes) = (BTreeMap::new(), BTreeMap::new());
        let said = match file.map(|(path, text)| (path, read(text))) {
            None => BTreeMap::new(),
            Some((path, Ok(said))) => said.into_iter().map(|(key, value)| (key, (value, Source::File(path.into())))).collect(),
            Some((path, Err(errors))) => {
                wrong.extend(errors.into_iter().map(|e| format!("{path}: {e}")));
                BTreeMap::new()
            }
        };
        for key in KEYS {
            let in_file = said.get(key.path).cloned();
            let (value, source) = match given.of(key) {
                Some((text, source)) => {
                    if in_file.is_some() {
                        notes.insert(key.path, format!("overridden: the file says something, and {source} wins"));
                    }
                    (key.kind.from_text(text).unwrap_or_else(|| text.into()), source)
                }
                None => in_file.unwrap_or_else(|| (key.default_value(), Source::Default)),
            };
            match key.kind.check(&value) {
                Ok(()) => {
                    if let Some(warning) = key.kind.warning(&value) {
                        notes.entry(key.path).or_insert(warning);
                    }
                }
                Err(allowed) => wrong.push(format!("{} ({source}): {value} is not {allowed}", key.path)),
            }
            values.insert(key.path, (value, source));
        }
        let calico = given.variables.get("CALICO_API_GROUP").filter(|t| !t.is_empty());
        if let (Some(group), Some((value, source))) = (calico, values.get_mut("datastore.apiGroup"))
            && value == "auto"
        {
            if super::keys::group(group).is_none() {
                wrong.push(format!("CALICO_API_GROUP: {group:?} is neither projectcalico.org/v3 nor crd.projectcalico.org/v1"));
            }
            (*value, *source) = (group.as_str().into(), Source::Variable("CALICO_API_GROUP".into()));
        }
        if let Some(other) = given.variables.get("DATASTORE_TYPE").filter(|t| !t.is_empty() && *t != "kubernetes") {
            wrong.push(format!("DATASTORE_TYPE: {other:?} is not kubernetes, the only datastore there is"));
        }
        if wrong.is_empty() { Ok(Self { values, notes }) } else { Err(ConfigError(wrong)) }
    }

    /// The value of a key, and where it is from.
    ///
    /// # Panics
    /// There is no such key.
    pub fn get(&self, path: &str) -> &(Value, Source) {
        self.values.get(path).unwrap_or_else(|| panic!("there is no key {path}"))
    }

    /// Puts the values of keys that need a restart back to what they are in `running`; answers with those that differ.
    pub fn keep_until_restart(&mut self, running: &Self) -> Vec<&'static str> {
        let mut differ = Vec::new();
        for key in KEYS.iter().filter(|k| !k.live) {
            let before = running.get(key.path);
            if self.get(key.path).0 != before.0 {
                differ.push(key.path);
                self.notes.insert(key.path, "changed in the file: needs a restart".into());
            }
            self.values.insert(key.path, before.clone());
        }
        differ
    }

    /// The keys whose values differ.
    pub fn changed_from(&self, before: &Self) -> Vec<&'static str> {
        KEYS.iter().map(|k| k.path).filter(|path| self.get(path).0 != before.get(path).0).collect()
    }
}

/// What a file says, by key.
fn read(text: &str) -> Result<BTreeMap<&'static str, Value>, Vec<String>> {
    // Keys that come twice are an error of this one.
    let value: yaml_serde::Value = yaml_serde::from_str(text).map_err(|e| vec![e.to_string()])?;
    let value: Value = yaml_serde::from_value(value).map_err(|e| vec![e.to_string()])?;
    let Value::Object(mut map) = value else { return Err(vec!["is no map of keys".into()]) };
    let mut wrong = Vec::new();
    for (name, want) in [("apiVersion", "ipam-operator/v1"), ("kind", "OperatorConfig")] {
        match map.remove(name) {
            Some(Value::String(text)) if text == want => {}
            Some(other) => wrong.push(format!("{name}: {other} is not {want}")),
            None => wrong.push(format!("{name}: is missing; it must be {want}")),
        }
    }
    let mut said = BTreeMap::new();
    walk("", &map, &mut said, &mut wrong);
    if wrong.is_empty() { Ok(said) } else { Err(wrong) }
}

fn walk(above: &str, map: &Map<String, Value>, said: &mut BTreeMap<&'static str, Value>, wrong: &mut Vec<String>) {
    for (name, value) in map {
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let below = format!("{path}.");
        match (key(&path), value) {
            (Some(key), value) => drop(said.insert(key.path, value.clone())),
            (None, Value::Object(map)) if KEYS.iter().any(|k| k.path.starts_with(&below)) => walk(&path, map, said, wrong),
            (None, value) if KEYS.iter().any(|k| k.path.starts_with(&below)) => wrong.push(format!("{path}: {value} is no map of keys")),
            (None, _) => wrong.push(format!("{path}: there is no such key; did you mean {}?", nearest(&path))),
        }
    }
}

/// The key that looks most like this, groups of keys included.
fn nearest(path: &str) -> String {
    let groups = KEYS.iter().flat_map(|k| k.path.match_indices('.').map(|(at, _)| &k.path[..at])).collect::<BTreeSet<_>>();
    let all = KEYS.iter().map(|k| k.path).chain(groups);
    let score = |name: &&str| (strsim::normalized_damerau_levenshtein(name, path) * 1e6) as i64;
    all.max_by_key(score).unwrap_or_default().into()
}
