//! The annotation by which somebody says that nothing may be released (operator.md d).

use serde_json::{Map, Value};

/// Its key, on pools, namespaces and nodes.
pub const DO_NOT_RELEASE: &str = "ipam-operator/do-not-release";
/// Where an object of v1 may carry annotations of v3.
const INSIDE: &str = "projectcalico.org/metadata";

/// What an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptOut {
    /// The value as it was found.
    pub value: String,
    /// Found inside the annotation in which v1 keeps the metadata of v3.
    pub inside: bool,
}

impl OptOut {
    /// What the metadata of an object says; a yes wins over a no.
    pub fn read(object: &Map<String, Value>) -> Option<Self> {
        let annotations = object.get("metadata")?.get("annotations")?;
        Self::of(|key| annotations.get(key).map(text))
    }

    /// What annotations say.
    pub fn of(annotation: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let outside = annotation(DO_NOT_RELEASE).map(|value| Self { value, inside: false });
        let kept = annotation(INSIDE).and_then(|kept| serde_json::from_str::<Value>(&kept).ok());
        let inside = kept.and_then(|kept| Some(Self { value: text(kept["annotations"].get(DO_NOT_RELEASE)?), inside: true }));
        match (outside, inside) {
            (Some(outside), Some(inside)) => Some(if inside.holds() && !outside.holds() { inside } else { outside }),
            (outside, inside) => outside.or(inside),
        }
    }

    /// Whether it says yes. What is neither a yes nor a no is a yes.
    pub fn holds(&self) -> bool {
        !["false", "0", "f"].iter().any(|no| self.value.eq_ignore_ascii_case(no))
    }

    /// Whether it is a clear yes or no.
    pub fn valid(&self) -> bool {
        !self.holds() || ["true", "1", "t"].iter().any(|yes| self.value.eq_ignore_ascii_case(yes))
    }
}

/// What is no text is no valid annotation, but somebody meant something by it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(annotations: Value) -> Option<(bool, bool, bool)> {
        let object = json!({ "metadata": { "annotations": annotations } });
        OptOut::read(object.as_object().expect("a map")).map(|o| (o.holds(), o.valid(), o.inside))
    }

    #[test]
    fn what_is_no_clear_no_is_a_yes() {
        for yes in ["true", "1", "t", "TRUE", "True"] {
            assert_eq!(read(json!({ DO_NOT_RELEASE: yes })), Some((true, true, false)), "{yes}");
        }
        for no in ["false", "0", "f", "FALSE"] {
            assert_eq!(read(json!({ DO_NOT_RELEASE: no })), Some((false, true, false)), "{no}");
        }
        for unclear in [json!(""), json!("yes"), json!("no"), json!(" false"), json!(true), json!(false)] {
            let clear = unclear.is_boolean();
            assert_eq!(read(json!({ DO_NOT_RELEASE: unclear })), Some((unclear != json!(false), clear, false)), "{unclear}");
        }
        assert_eq!(read(json!({ "other": "true" })), None);
    }

    #[test]
    fn on_v1_it_may_be_inside_and_a_yes_wins() {
        let inside = |value: &str| json!({ "annotations": { DO_NOT_RELEASE: value } }).to_string();
        assert_eq!(read(json!({ INSIDE: inside("true") })), Some((true, true, true)));
        assert_eq!(read(json!({ INSIDE: inside("true"), DO_NOT_RELEASE: "false" })), Some((true, true, true)));
        assert_eq!(read(json!({ INSIDE: inside("false"), DO_NOT_RELEASE: "true" })), Some((true, true, false)));
        assert_eq!(read(json!({ INSIDE: "rubbish" })), None);
    }
}
