//! Resident memory of a loaded view by number of allocations. Each size in a process of its own.

use std::process::Command;

use ipam_operator::ledger::Ledger;
use ipam_operator::plan::{Now, Policy, plan};
use ipam_tests::synthetic::{now, view};

fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

fn main() {
    let sizes: Vec<u32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    if let [n] = sizes[..] {
        let mut view = view(n);
        let (mut ledger, dirty) = (Ledger::default(), view.take_dirty());
        let policy = Policy::default();
        let planned = plan(&view, &mut ledger, dirty, Now::both(now()), &policy, &Default::default());
        let kib = resident_kib().unwrap_or(0);
        println!(
            "{n:>9} allocations  {:>5} MB  {:>4} bytes each  ({} actions)",
            kib / 1000,
            kib * 1024 / u64::from(n.max(1)),
            planned.actions.len()
        );
        return;
    }
    for n in [64_000, 150_016, 1_000_000] {
        let me = std::env::current_exe().expect("a path");
        assert!(Command::new(me).arg(n.to_string()).status().expect("runs").success());
    }
}
