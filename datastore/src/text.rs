//! Durations and times as people and objects write them.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// A duration in Go's text form, such as `1h30m`, `15m0s`, `0s`; `None`: it is none.
pub fn go_duration(text: &str) -> Option<TimeDelta> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(TimeDelta::zero());
    }
    let mut nanos = 0.0;
    let mut any = false;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let unit = ["ns", "us", "µs", "ms", "s", "m", "h"].into_iter().filter(|u| rest.starts_with(u)).max_by_key(|u| u.len())?;
        nanos += number
            * match unit {
                "ns" => 1.0,
                "us" | "µs" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" => 60e9,
                _ => 3600e9,
            };
        rest = &rest[unit.len()..];
        any = true;
    }
    (any && nanos < 9e18).then(|| TimeDelta::nanoseconds((sign * nanos) as i64))
}

/// A duration of the command line: Go's text form, not negative.
///
/// # Errors
/// It is none.
pub fn duration(text: &str) -> Result<TimeDelta, String> {
    go_duration(text).filter(|d| *d >= TimeDelta::zero()).ok_or_else(|| format!("{text:?} is not a duration such as 15m, 1h30m or 0s"))
}

/// A time of the command line: RFC 3339.
///
/// # Errors
/// It is none.
pub fn time(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text).map(|t| t.to_utc()).map_err(|_| format!("{text:?} is not a time such as 2026-11-29T20:35:20Z"))
}

/// A time as outputs write it: RFC 3339, UTC.
pub fn stamp(t: DateTime<Utc>) -> String {
    t.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::go_duration;
    use chrono::TimeDelta;

    #[test]
    fn durations_in_go_text() {
        for (text, want) in
            [("15m", 900_000), ("1h30m", 5_400_000), ("15m0s", 900_000), ("0s", 0), ("0", 0), ("1.5s", 1500), ("20ms", 20), ("-1s", -1000)]
        {
            assert_eq!(go_duration(text), Some(TimeDelta::milliseconds(want)), "{text}");
        }
        for bad in ["", "15", "m", "1x", "1h30", "one", "."] {
            assert_eq!(go_duration(bad), None, "{bad:?}");
        }
    }
}
