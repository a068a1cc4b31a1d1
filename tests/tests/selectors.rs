//! The selector language: every computed row, the two tables of its chapter, and print → parse.

use std::collections::BTreeSet;

use ipam::Selector;
use ipam::selector::{Labels, Op};
use ipam_tests::data;
use proptest::prelude::*;

#[test]
fn pool_13_selectors_equal_the_reference_row_by_row() {
    let vectors = data("selectors.json");
    let sets: Vec<Labels> =
        vectors["labelSets"].as_array().expect("sets").iter().map(|s| serde_json::from_value(s.clone()).expect("labels")).collect();
    let mut rows = 0;
    for row in vectors["selectors"].as_array().expect("rows") {
        let text = row["selector"].as_str().expect("a text");
        let parsed = text.parse::<Selector>();
        assert_eq!(parsed.is_ok(), row["valid"] == true, "{text:?} {parsed:?}");
        let Ok(selector) = parsed else { continue };
        assert_eq!(selector.to_string(), row["canonical"].as_str().expect("a text"), "{text:?}");
        for (labels, want) in sets.iter().zip(row["matches"].as_array().expect("answers")) {
            assert_eq!(selector.matches(labels), want == true, "{text:?} {labels:?}");
            rows += 1;
        }
    }
    assert!(rows > 500, "{rows}");
}

#[test]
fn pool_05_pool_14_what_is_no_selector() {
    let long = format!("{} == 'x'", "a".repeat(513));
    for bad in [
        "a",
        "a ==",
        "a == b",
        "a = 'b'",
        "'a' == 'b'",
        "a == \"b",
        "a & b",
        "a == 'x' & has(b)",
        "a == 'x' | has(b)",
        "a == 'x' &&",
        "a == 'x' || ",
        "&& a == 'x'",
        "!",
        "()",
        "(a == 'x'",
        "a == 'x')",
        "has()",
        "has(a",
        "has (a)",
        "has('a')",
        "has(a b)",
        "all(",
        "all(x)",
        "all ()",
        "a in 'x'",
        "a in {x}",
        "a in {'x' 'y'}",
        "a in {'x'",
        "a not {'x'}",
        "a not in b",
        "a isnot 'x'",
        "a starts 'x'",
        "a startsx 'x'",
        "a == 'x' b == 'y'",
        "a b",
        "a\n== 'x'",
        "%",
        "a == 'x' $",
        "region == ",
        "region === \"east\"",
        &long,
    ] {
        assert!(bad.parse::<Selector>().is_err(), "{bad:?}");
    }
    assert!(format!("{} == 'x'", "a".repeat(512)).parse::<Selector>().is_ok());
    for good in [
        "",
        "  ",
        "a not in {'x',}",
        "a notin{\"x\"}",
        "a startswith 'x'",
        "! !has( a )",
        "in in {'in'}",
        "not not in {'x'}",
        "contains contains 'c'",
    ] {
        assert!(good.parse::<Selector>().is_ok(), "{good:?}");
    }
}

fn text() -> impl Strategy<Value = String> {
    // Never both kinds of quotes: such a text cannot be written.
    prop_oneof!["[a-c'é \\n]{0,3}", "[a-c\"}{,]{0,3}"]
}

fn set() -> impl Strategy<Value = BTreeSet<String>> {
    prop::collection::btree_set(text(), 0..3)
}

fn selector() -> impl Strategy<Value = Selector> {
    let key = || "[a-c./_-]{1,3}|has|in|all|not";
    let op = prop_oneof![Just(Op::Eq), Just(Op::Ne), Just(Op::Contains), Just(Op::StartsWith), Just(Op::EndsWith)];
    let leaf = prop_oneof![
        Just(Selector::All),
        Just(Selector::Global),
        key().prop_map(Selector::Has),
        (key(), op, text()).prop_map(|(k, o, v)| Selector::Compare(k, o, v)),
        (key(), set()).prop_map(|(k, s)| Selector::In(k, s)),
        (key(), set()).prop_map(|(k, s)| Selector::NotIn(k, s)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            inner
                .clone()
                .prop_filter("an even run of ! cancels out", |s| !matches!(s, Selector::Not(_)))
                .prop_map(|s| Selector::Not(Box::new(s))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Selector::And),
            prop::collection::vec(inner, 2..4).prop_map(Selector::Or),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed_again(selector in selector(), labels in prop::collection::btree_map("[a-c]{1,2}", "[a-c]{0,3}", 0..4)) {
        let again: Selector = selector.to_string().parse().expect("what we print is a selector");
        prop_assert_eq!(again.matches(&labels), selector.matches(&labels));
        prop_assert_eq!(again.to_string(), selector.to_string());
        prop_assert_eq!(again, selector);
    }
}
