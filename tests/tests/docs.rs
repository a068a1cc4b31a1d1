//! Tables of the documentation that follow from the code.

use std::fmt::Write as _;

use ipam_metrics::further::{FURTHER, Kind, Shown};
use ipam_operator::config::keys::KEYS;
use ipam_operator::events::REASONS;
use ipam_tests::repo;

/// Holds the table between the marks of a document against what it should be; BLESS=1 writes it.
fn table(file: &str, want: &str) {
    let path = repo(file);
    let text = std::fs::read_to_string(&path).expect("there");
    let start = text.find("<!-- table").and_then(|at| text[at..].find("-->\n").map(|n| at + n + 4)).expect("a mark");
    let end = text.find("<!-- end -->").expect("a mark");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{}{want}{}", &text[..start], &text[end..])).expect("written");
        return;
    }
    assert!(text[start..end] == *want, "{file}: BLESS=1 writes its table anew");
}

#[test]
fn met_every_series_is_in_the_documentation() {
    let mut out = String::from("| name | type | labels | from | meaning |\n|---|---|---|---|---|\n");
    for s in FURTHER {
        let kind = match s.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        let shown = match s.shown {
            Shown::Active => "the active one",
            Shown::EverActive => "who was active",
            Shown::Always => "all",
        };
        let _ = writeln!(out, "| `{}` | {kind} | {} | {shown} | {} |", s.name, s.labels.join(", "), s.help);
    }
    table("docs/metrics.md", &out);
}

#[test]
fn a_every_key_is_in_the_documentation() {
    let mut out = String::from("| key | what it may be | default | live | flag | meaning |\n|---|---|---|---|---|---|\n");
    for k in KEYS {
        let flag = k.flag.map_or_else(|| "–".into(), |f| format!("`--{f}`"));
        let live = if k.live { "yes" } else { "no" };
        let _ = writeln!(out, "| `{}` | {} | `{}` | {live} | {flag} | {} |", k.path, k.kind.allowed(), k.default, k.help);
    }
    table("docs/configuration.md", &out);
}

#[test]
fn c_every_event_is_in_the_documentation() {
    let mut out = String::from("| reason | about | meaning |\n|---|---|---|\n");
    for (reason, about, meaning) in REASONS {
        let _ = writeln!(out, "| `{reason}` | {about} | {meaning} |");
    }
    table("docs/events.md", &out);
    // Each is sent somewhere.
    let mut code = String::new();
    for file in ["controller/src/told.rs", "controller/src/run/around.rs", "controller/src/run/standing.rs"] {
        code += &std::fs::read_to_string(repo(file)).expect("there");
    }
    for (reason, ..) in REASONS {
        assert!(code.contains(&format!("\"{reason}\"")), "{reason} is never told");
    }
}
