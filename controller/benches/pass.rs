//! What a pass costs: `cargo bench -p ipam-operator`. Times a whole cluster's scan, ingest, report and scrape, and a
//! pass after one block changed; the throughput column is per allocation.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use ipam::model::Config;
use ipam_datastore::Update;
use ipam_metrics::Page;
use ipam_operator::gauges::Gauges;
use ipam_operator::ledger::Ledger;
use ipam_operator::plan::{Now, Policy, plan};
use ipam_operator::report::report;
use ipam_tests::synthetic::{BLOCK, block, leak_one_a_block, now, view};

const SIZES: [u32; 3] = [64_000, 150_016, 1_000_000];

fn main() {
    divan::main();
}

fn policy() -> Policy {
    Policy::default()
}

/// Everything marked, scanned and planned, nothing due.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn scan_and_plan(bencher: Bencher<'_, '_>, n: u32) {
    let (mut view, mut ledger) = (view(n), Ledger::default());
    bencher.counter(ItemsCount::new(n)).bench_local(|| {
        view.cache.mark_all();
        let dirty = view.take_dirty();
        black_box(plan(&view, &mut ledger, dirty, Now::both(now()), &policy(), &Config::default()))
    });
}

/// One in 64 addresses leaked: every one of them is looked at with its handle, and its timer set.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn scan_and_plan_leaky(bencher: Bencher<'_, '_>, n: u32) {
    let (mut view, mut ledger) = (view(n), Ledger::default());
    leak_one_a_block(&mut view, n);
    bencher.counter(ItemsCount::new(n)).bench_local(|| {
        view.cache.mark_all();
        let dirty = view.take_dirty();
        black_box(plan(&view, &mut ledger, dirty, Now::both(now()), &policy(), &Config::default()))
    });
}

/// One block changed: taken over, and a pass.
#[divan::bench(args = SIZES, sample_count = 200, sample_size = 1)]
fn one_block_pass(bencher: Bencher<'_, '_>, n: u32) {
    let (mut view, mut ledger, mut seq) = (view(n), Ledger::default(), 2);
    let dirty = view.take_dirty();
    plan(&view, &mut ledger, dirty, Now::both(now()), &policy(), &Config::default());
    bencher
        .with_inputs(|| {
            seq += 1;
            block(n / 2 / BLOCK * BLOCK, seq, seq % 2 == 0)
        })
        .bench_local_values(|update| {
            view.apply(&update);
            let dirty = view.take_dirty();
            black_box(plan(&view, &mut ledger, dirty, Now::both(now()), &policy(), &Config::default()))
        });
}

/// A block of which every allocation is new is taken over.
#[divan::bench(args = SIZES, sample_count = 200, sample_size = 1)]
fn ingest_block(bencher: Bencher<'_, '_>, n: u32) {
    let (mut view, mut seq) = (view(n), 2);
    let update = |seq| -> Update { block(n / 2 / BLOCK * BLOCK, seq, false) };
    bencher
        .counter(ItemsCount::new(BLOCK))
        .with_inputs(|| {
            seq += 1;
            update(seq)
        })
        .bench_local_values(|update| view.apply(&update));
}

/// The report, counted anew.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn make_report(bencher: Bencher<'_, '_>, n: u32) {
    let (view, mut ledger) = (view(n), Ledger::default());
    bencher.bench_local(|| black_box(report(&view, &mut ledger)));
}

/// The page, encoded from the report piece by piece as it is sent: 50 pools and every node.
#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn scrape(bencher: Bencher<'_, '_>, n: u32) {
    let (view, mut ledger, page) = (view(n), Ledger::default(), Page::default());
    page.publish(report(&view, &mut ledger));
    bencher.bench_local(|| page.pieces().map(|piece| black_box(piece).len()).sum::<usize>());
}

/// Reserved addresses of a /8 with 10 000 reservations, from their text.
#[divan::bench]
fn reserved_of_a_slash_8(bencher: Bencher<'_, '_>) {
    let entries: Vec<String> = (0..10_000u32).map(|i| format!(" 10.{}.{}.{}/{}", i % 251, i / 251, i % 7 * 32, 27 + i % 6)).collect();
    let pool = "10.0.0.0/8".parse().expect("a CIDR");
    bencher.bench(|| black_box(ipam_accounting::reserved::reserved_in_cidr(pool, entries.iter().map(String::as_str))));
}

/// The further gauges, counted anew.
#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn make_gauges(bencher: Bencher<'_, '_>, n: u32) {
    let (view, ledger, policy) = (view(n), Ledger::default(), policy());
    let gauges = Gauges::new(&view, &ledger, &policy, Now::both(now()));
    bencher.bench_local(|| black_box(gauges.samples(&Config::default())));
}
