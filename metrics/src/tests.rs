//! The page, and that our encoder and the crate's agree.

use super::*;

fn report() -> Report {
    let mut report = Report { nodes: vec!["a".into(), "b".into()], ..Report::default() };
    report.pools.insert("p".into(), PoolSize { size: 256.0, reserved: 16.0 });
    report.in_use.insert(("p".into(), "a".into()), 4);
    report
}

fn text(report: Report) -> String {
    let page = Page::default();
    page.publish(report);
    page.text()
}

/// As the crate's own encoder writes it.
fn reference(report: Report) -> String {
    let page = Page::default();
    page.publish(report);
    let mut families = page.collect();
    families.sort_by(|a, b| a.name().cmp(b.name()));
    prometheus::TextEncoder::new().encode_to_string(&families).expect("encodes")
}

#[test]
fn met_23_zero_seeding_and_families_without_samples() {
    assert_eq!(Page::default().text(), "");
    assert_eq!(text(Report::default()), "");
    let text = text(report());
    let lines: Vec<_> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(
        lines,
        [
            "ipam_allocations_borrowed{ippool=\"p\",node=\"a\"} 0",
            "ipam_allocations_borrowed{ippool=\"p\",node=\"b\"} 0",
            "ipam_allocations_gc_candidates{ippool=\"p\",node=\"a\"} 0",
            "ipam_allocations_gc_candidates{ippool=\"p\",node=\"b\"} 0",
            "ipam_allocations_in_use{ippool=\"p\",node=\"a\"} 4",
            "ipam_allocations_in_use{ippool=\"p\",node=\"b\"} 0",
            "ipam_ippool_reserved{ippool=\"p\"} 16",
            "ipam_ippool_size{ippool=\"p\"} 256",
        ]
    );
}

#[test]
fn met_01_help_texts_name_no_series_and_the_counter_has_no_suffix() {
    for (name, help, _) in ALL {
        assert!(!name.ends_with("_total"));
        assert!(ALL.iter().all(|(other, _, _)| !help.contains(other)), "{help}");
    }
    let mut report = Report::default();
    report.reclamations.insert(("p".into(), "a".into()), 7);
    assert!(
        text(report)
            .ends_with("# TYPE ipam_allocations_gc_reclamations counter\nipam_allocations_gc_reclamations{ippool=\"p\",node=\"a\"} 7\n")
    );
}

#[test]
fn our_encoder_and_the_crate_s_write_the_same_bytes() {
    let mut full = report();
    full.nodes = ["a", "odd\"\\\nname", "z"].map(Into::into).to_vec();
    full.pools.insert("huge".into(), PoolSize { size: 2f64.powi(120), reserved: 0.5 });
    // Values of pools and nodes that are no seeds, before, between and after them.
    for (pool, node) in
        [("a", "m"), ("huge", "b"), ("no_ippool", "unknown_node"), ("p", "z"), ("p", "zz"), ("zz", "a"), ("p", "odd\"\\\nname")]
    {
        let key = (pool.to_owned(), node.to_owned());
        for map in [&mut full.in_use, &mut full.borrowed, &mut full.blocks, &mut full.candidates, &mut full.reclamations] {
            map.insert(key.clone(), 3);
        }
        for map in [&mut full.per_node, &mut full.borrowed_per_node, &mut full.blocks_per_node] {
            map.insert(node.into(), 1_000_000);
        }
    }
    for r in [Report::default(), report(), full] {
        assert_eq!(text(r.clone()), reference(r));
    }
}
