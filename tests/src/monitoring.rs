//! Alerts and dashboards (operator.md h, i): written here in short, made into the chart's files by the test that also checks them.
//!
//! In a query `M(x)` and `m(x)` stand for the largest and the smallest over all replicas, `C(x)` for how quickly a counter grows on
//! all of them, `$sel` for what selects them, `$replica` for the labels by which only they differ.

pub mod alert_cases;
pub mod dashboards;
pub mod panels;
pub mod rules;

/// Labels by which only replicas differ.
const REPLICA: &str = "instance, pod, container, endpoint, service";

/// What selects the operator's series in alerts; the chart replaces it.
pub const SELECTOR: &str = "job=\"ipam-operator\"";

/// Writes a query out.
pub fn expand(query: &str, selector: &str) -> String {
    let mut out = String::new();
    let mut rest = query;
    while let Some(at) = rest.find(['M', 'm', 'C']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let word = before.chars().last().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        let Some(inside) = from[1..].strip_prefix('(').filter(|_| !word) else {
            out.push_str(&from[..1]);
            rest = &from[1..];
            continue;
        };
        let quoted = |at: usize| inside[..at].matches('"').count() % 2 == 1;
        let end = inside.match_indices(')').map(|(at, _)| at).find(|at| !quoted(*at)).expect("M(, m( and C( hold a series");
        let (name, labels) = inside[..end].split_once('{').map_or((&inside[..end], ""), |(n, l)| (n, l.trim_end_matches('}')));
        let series = if labels.is_empty() { format!("{name}{{$sel}}") } else { format!("{name}{{$sel, {labels}}}") };
        out.push_str(&match &from[..1] {
            "M" => format!("max without ($replica) ({series})"),
            "m" => format!("min without ($replica) ({series})"),
            _ => format!("sum without ($replica) (rate({series}[$__rate_interval]))"),
        });
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out.replace("$replica", REPLICA).replace("$sel", selector)
}

/// The names of series in a query that is written out.
pub fn series(query: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut text = String::new();
    // What stands in quotes is no name.
    for (i, part) in query.split('"').enumerate() {
        text.push_str(if i % 2 == 0 { part } else { "" });
    }
    for word in text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')) {
        if ["ipam_", "process_", "ippool:"].iter().any(|p| word.starts_with(p)) || word == "up" {
            names.push(word.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_written_out() {
        let all = "without (instance, pod, container, endpoint, service)";
        assert_eq!(expand("M(a_b{x=\"y\"}) > 0", "s=\"t\""), format!("max {all} (a_b{{s=\"t\", x=\"y\"}}) > 0"));
        assert_eq!(expand("M(a{x=~\"(b)?\"})", "s=\"t\""), format!("max {all} (a{{s=\"t\", x=~\"(b)?\"}})"));
        assert_eq!(expand("sum(m(a)) + max(up{$sel})", "s"), format!("sum(min {all} (a{{s}})) + max(up{{s}})"));
        assert_eq!(series("max(ipam_a{x=\"ipam_b\"}) and up == process_c + ippool:d:max"), ["ipam_a", "up", "process_c", "ippool:d:max"]);
    }
}
