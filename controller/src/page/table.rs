//! Tables that sort by a click, and addresses of pages.

use std::cmp::Ordering;

use maud::{Markup, html};
use serde::Deserialize;

/// What a page was asked for; what is not said is `None`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Asked {
    /// Column to sort by; with a `-` the other way round.
    pub sort: Option<String>,
    /// What is searched.
    pub q: Option<String>,
    /// A pool.
    pub pool: Option<String>,
    /// A node.
    pub node: Option<String>,
    /// A block.
    pub cidr: Option<String>,
    /// `table` instead of a grid.
    pub r#as: Option<String>,
    /// Which part of a long list, from 1.
    pub part: Option<usize>,
}

impl Asked {
    /// The address of a page that asks the same.
    pub fn link(&self, path: &str) -> String {
        let part = self.part.map(|p| p.to_string());
        let all = [
            ("sort", &self.sort),
            ("q", &self.q),
            ("pool", &self.pool),
            ("node", &self.node),
            ("cidr", &self.cidr),
            ("as", &self.r#as),
            ("part", &part),
        ];
        let mut query = form_urlencoded::Serializer::new(String::new());
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))).for_each(|(name, value)| {
            query.append_pair(name, value);
        });
        let query = query.finish();
        if query.is_empty() { path.into() } else { format!("{path}?{query}") }
    }
}

/// The address of the page that explains an address.
pub fn explain(ip: impl ToString) -> String {
    link("/explain", "ip", &ip.to_string())
}

/// The address of a page about one thing.
pub fn link(path: &str, name: &str, value: &str) -> String {
    format!("{path}?{}", form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish())
}

/// A column of rows of kind `R`.
pub struct Column<R> {
    /// As addresses call it.
    key: &'static str,
    /// As people call it.
    title: &'static str,
    /// Right-aligned.
    number: bool,
    cell: fn(&R) -> Markup,
    by: fn(&R, &R) -> Ordering,
}

impl<R> Column<R> {
    /// A column of text.
    pub fn text(key: &'static str, title: &'static str, cell: fn(&R) -> Markup, by: fn(&R, &R) -> Ordering) -> Self {
        Self { key, title, number: false, cell, by }
    }

    /// A column of numbers.
    pub fn number(key: &'static str, title: &'static str, cell: fn(&R) -> Markup, by: fn(&R, &R) -> Ordering) -> Self {
        Self { key, title, number: true, cell, by }
    }
}

/// So many rows of a table are shown at a time.
pub const ROWS: usize = 200;

/// The part of a list that was asked for, with links to the others.
pub fn part<'r, R>(rows: &'r [R], size: usize, asked: &Asked, path: &str) -> (&'r [R], Markup) {
    let parts = rows.len().div_ceil(size).max(1);
    let this = asked.part.unwrap_or(1).clamp(1, parts);
    let shown = &rows[(this - 1) * size..(this * size).min(rows.len())];
    let to = |n: usize| Asked { part: Some(n), ..asked.clone() }.link(path);
    let links = html! {
        @if parts > 1 {
            nav.parts {
                @if this > 1 { a rel="prev" href=(to(this - 1)) { "‹ before" } }
                span { (this) " of " (parts) " (" (rows.len()) ")" }
                @if this < parts { a rel="next" href=(to(this + 1)) { "next ›" } }
            }
        }
    };
    (shown, links)
}

/// A table of rows, sorted as it was asked for, in parts.
pub fn table<R>(columns: &[Column<R>], mut rows: Vec<R>, asked: &Asked, path: &str) -> Markup {
    let (descending, key) = match asked.sort.as_deref() {
        Some(sort) => sort.strip_prefix('-').map_or((false, sort), |key| (true, key)),
        None => (false, ""),
    };
    let sorted = columns.iter().find(|c| c.key == key);
    if let Some(column) = sorted {
        rows.sort_by(|a, b| if descending { (column.by)(b, a) } else { (column.by)(a, b) });
    }
    let (shown, parts) = part(&rows, ROWS, asked, path);
    let to = |key: &str| {
        let again = sorted.is_some_and(|c| c.key == key) && !descending;
        Asked { sort: Some(if again { format!("-{key}") } else { key.into() }), part: None, ..asked.clone() }.link(path)
    };
    let order = |key: &str| sorted.filter(|c| c.key == key).map(|_| if descending { "descending" } else { "ascending" });
    html! {
        div.scroll { table {
            thead { tr { @for c in columns { th.number[c.number] aria-sort=[order(c.key)] { a href=(to(c.key)) { (c.title) } } } } }
            tbody { @for row in shown { tr { @for c in columns { td.number[c.number] { ((c.cell)(row)) } } } } }
        } }
        (parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_escape_what_they_carry() {
        let asked = Asked { q: Some("a&b=ü".into()), part: Some(2), ..Asked::default() };
        assert_eq!(asked.link("/leaks"), "/leaks?q=a%26b%3D%C3%BC&part=2");
        assert_eq!(explain("fd00::1"), "/explain?ip=fd00%3A%3A1");
    }

    #[test]
    fn a_list_comes_in_parts_and_a_part_that_is_not_there_is_the_last() {
        let rows: Vec<u32> = (0..5).collect();
        let shown = |n| part(&rows, 2, &Asked { part: Some(n), ..Asked::default() }, "/x").0.to_vec();
        assert_eq!([shown(0), shown(1), shown(2), shown(3), shown(9)], [vec![0, 1], vec![0, 1], vec![2, 3], vec![4], vec![4]]);
        assert!(part::<u32>(&[], 2, &Asked::default(), "/x").0.is_empty());
    }
}
