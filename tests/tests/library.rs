//! The library's operations of this far, on the store in memory.

use std::net::IpAddr;
use std::sync::Arc;

use chrono::TimeDelta;
use futures::executor::block_on;
use ipam::affinity::{Conditions, GaveBack, GiveBackError};
use ipam::block::Stale;
use ipam::model::{Affinity, AffinityKind, AffinityState, BlockKind, Config, ConfigKind, Handle, HandleKind};
use ipam::store::{Extra, Revision, Row, StoreError, Table, Uid};
use ipam::{Attribute, Block, BlockCidr, HandleId, Ipam, MemStore, Outcome, Owner, Release};
use ipam_accounting::facts::Attrs;
use ipam_accounting::set::Ranges;
use ipam_operator::clocks::SimClock;
use ipam_tests::faulty::{Faulty, row_name};
use ipam_tests::script::start;

struct Lab {
    store: MemStore,
    faulty: Faulty,
    clock: Arc<SimClock>,
    ipam: Ipam<Faulty, Arc<SimClock>>,
    rows: std::cell::Cell<u64>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn cidr(text: &str) -> BlockCidr {
    text.parse().expect("a CIDR")
}

fn host(name: &str) -> Owner {
    Owner::Host(name.into())
}

impl Lab {
    fn new(cooldown_seconds: u32) -> Self {
        let store = MemStore::new();
        let faulty = Faulty::new(store.clone());
        let clock = Arc::new(SimClock::new(start()));
        let lab = Self { ipam: Ipam::new(faulty.clone(), clock.clone()), store, faulty, clock, rows: Default::default() };
        lab.put::<ConfigKind>((), Config { cooldown_seconds, ..Config::default() });
        lab
    }

    fn put<K: ipam::mem::Kept>(&self, key: K::Key, value: K::Value) {
        self.rows.set(self.rows.get() + 1);
        let n = self.rows.get();
        self.store.put::<K>(Row { key, value, revision: Revision(format!("r{n}")), uid: Uid(format!("u{n}")), extra: Extra::NONE }, false);
    }

    /// A block of `owner` with so many addresses of each handle, from the first one on; its rows with it.
    fn block(&self, c: &str, owner: Option<&str>, handles: &[(&str, usize)]) {
        let mut block = Block::new(cidr(c), None, 1000).expect("fits");
        block.affinity = owner.map(Into::into);
        for (handle, n) in handles {
            block.auto_assign(*n, Some(handle), &Attrs::new(), None, &Ranges::default()).expect("no check");
            let known = self.store.peek::<HandleKind>(&HandleId::new(handle)).map(|(r, _)| r.value.blocks);
            let mut blocks = known.unwrap_or_default();
            blocks.insert(cidr(c), *n as i64);
            self.put::<HandleKind>(HandleId::new(handle), Handle { id: (*handle).into(), blocks });
        }
        self.put::<BlockKind>(cidr(c), block);
        if let Some(owner) = owner.and_then(Owner::parse) {
            self.put::<AffinityKind>((owner, cidr(c)), Affinity { state: AffinityState::Confirmed, indexed: true });
        }
    }

    fn stored(&self, c: &str) -> Option<Block> {
        self.store.peek::<BlockKind>(&cidr(c)).map(|(r, _)| r.value)
    }

    fn count(&self, handle: &str) -> Option<i64> {
        self.store.peek::<HandleKind>(&HandleId::new(handle)).map(|(r, _)| r.value.blocks.values().sum())
    }

    fn release(&self, releases: &[Release]) -> Vec<(String, Outcome)> {
        let report = block_on(self.ipam.release_ips(releases)).expect("ran");
        report.outcomes.into_iter().map(|(ip, o)| (ip.to_string(), o)).collect()
    }

    fn wait(&self, seconds: i64) {
        self.clock.set(ipam::Clock::now(&*self.clock) + TimeDelta::seconds(seconds));
    }
}

fn exact(text: &str, handle: &str, seq: i64) -> Release {
    Release::exact(ip(text), Some(handle), seq, None)
}

#[test]
fn rel_18_rel_19_rel_24_results_are_per_address_and_counts_follow() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 3)]);
    lab.block("10.0.0.4/30", Some("host:a"), &[("g", 2)]);
    let done = lab.release(&[
        exact("10.0.0.0", "h", 1000),
        exact("10.0.0.1", "h", 7),
        exact("10.0.0.4", "h", 1000),
        exact("10.0.0.5", "g", 1000),
        exact("10.0.0.3", "h", 7),
        exact("192.0.2.1", "h", 1),
    ]);
    assert_eq!(
        done,
        [
            ("10.0.0.0".into(), Outcome::Released),
            ("10.0.0.1".into(), Outcome::Stale(Stale::Sequence { stored: 1000, expected: 7 })),
            ("10.0.0.3".into(), Outcome::AlreadyFree),
            ("10.0.0.4".into(), Outcome::Stale(Stale::Handle)),
            ("10.0.0.5".into(), Outcome::Released),
            ("192.0.2.1".into(), Outcome::AlreadyFree),
        ]
    );
    assert_eq!((lab.count("h"), lab.count("g")), (Some(2), Some(1)));
    assert_eq!(lab.stored("10.0.0.0/30").map(|b| (b.seq, b.in_use())), Some((1001, vec![ip("10.0.0.1"), ip("10.0.0.2")])));
    lab.release(&[exact("10.0.0.1", "h", 1000), exact("10.0.0.2", "h", 1000)]);
    assert_eq!(lab.count("h"), None, "the last one deletes the row");
    assert!(lab.stored("10.0.0.0/30").is_some_and(|b| b.is_empty()), "REL-17: an owned block stays");
}

#[test]
fn rel_16_rel_26_nobody_s_block_goes_with_its_last_address() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", None, &[("h", 2)]);
    lab.block("10.0.0.4/30", None, &[("h", 2)]);
    lab.release(&["10.0.0.0", "10.0.0.1", "10.0.0.4"].map(|a| exact(a, "h", 1000)));
    assert!(lab.stored("10.0.0.0/30").is_none() && lab.stored("10.0.0.4/30").is_some());
    assert_eq!(lab.count("h"), Some(1));
}

#[test]
fn rel_23_col_01_a_cooling_address_is_free_already_and_nothing_is_written() {
    let lab = Lab::new(60);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 2)]);
    lab.release(&[exact("10.0.0.0", "h", 1000)]);
    let block = lab.stored("10.0.0.0/30").expect("there");
    assert_eq!(block.entry(0), Some(&Attribute { released_at: Some(start()), ..Attribute::default() }));
    assert_eq!((block.seq_of(0), lab.count("h")), (1000, Some(1)), "stamped with the number before the write");
    let writes = || {
        lab.store
            .requests()
            .into_iter()
            .filter(|((verb, _), _)| !matches!(verb, ipam::mem::Verb::Get | ipam::mem::Verb::List))
            .map(|(_, n)| n)
            .sum::<u64>()
    };
    let before = writes();
    assert_eq!(lab.release(&[exact("10.0.0.0", "h", 1000)]), [("10.0.0.0".into(), Outcome::AlreadyFree)]);
    assert_eq!(writes(), before);
    assert_eq!(lab.stored("10.0.0.0/30"), Some(block));
}

#[test]
fn d_57_a_write_without_answer_is_unknown_and_the_handle_keeps_its_count() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 1)]);
    lab.block("10.0.0.4/30", Some("host:a"), &[("g", 1)]);
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/30")), Some(StoreError::Unavailable("cut".into())));
    let done = lab.release(&[exact("10.0.0.0", "h", 1000), exact("10.0.0.4", "g", 1000)]);
    assert!(matches!(done[0].1, Outcome::Unknown(_)) && done[1].1 == Outcome::Released, "{done:?}");
    assert_eq!((lab.count("h"), lab.count("g")), (Some(1), None));
    // A refused write is no unknown one.
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/30")), Some(StoreError::Refused("no".into())));
    assert!(matches!(lab.release(&[exact("10.0.0.0", "h", 1000)])[0].1, Outcome::Failed(_)));
    assert_eq!(lab.stored("10.0.0.0/30").map(|b| b.in_use().len()), Some(1));
}

#[test]
fn hdl_05_a_count_that_is_too_low_is_reported_and_left_for_repair() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 2)]);
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks: [(cidr("10.0.0.0/30"), 1)].into() });
    let report = block_on(lab.ipam.release_ips(&["10.0.0.0", "10.0.0.1"].map(|a| exact(a, "h", 1000)))).expect("ran");
    assert_eq!((report.handles_behind.len(), lab.count("h")), (1, Some(1)));
    assert!(lab.stored("10.0.0.0/30").is_some_and(|b| b.is_empty()));
}

#[test]
fn rbh_01_rbh_02_rbh_03_rbh_04_rbh_05_by_handle() {
    let lab = Lab::new(0);
    let by_handle = |h: &str| block_on(lab.ipam.release_by_handle(&HandleId::new(h)));
    assert!(matches!(by_handle("x"), Err(ipam::release::ReleaseError::NoSuchHandle(_))));
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 2), ("g", 1)]);
    lab.block("10.0.0.4/30", None, &[("h", 1)]);
    // RBH-04: an entry for a block that is gone does not keep the handle alive.
    let (row, _) = lab.store.peek::<HandleKind>(&HandleId::new("h")).expect("there");
    let blocks = row.value.blocks.iter().map(|(c, n)| (*c, *n)).chain([(cidr("10.0.0.8/30"), 5)]).collect();
    lab.put::<HandleKind>(HandleId::new("h"), Handle { id: "h".into(), blocks });
    assert_eq!(by_handle("h\rjunk"), Ok(vec![ip("10.0.0.0"), ip("10.0.0.1"), ip("10.0.0.4")]));
    assert_eq!((lab.count("h"), lab.count("g")), (None, Some(1)));
    assert_eq!(lab.stored("10.0.0.0/30").map(|b| b.in_use()), Some(vec![ip("10.0.0.2")]));
    assert!(lab.stored("10.0.0.4/30").is_none(), "RBH-06: nobody's block goes");
}

#[test]
fn col_11_rbh_08_by_handle_does_not_restamp_and_keeps_a_virtual_block() {
    let lab = Lab::new(60);
    lab.block("10.0.0.0/30", Some("virtual:load-balancer"), &[("h", 1)]);
    let seqs = |b: Option<Block>| b.map(|b| (b.seq, b.seq_of(0)));
    assert_eq!(seqs(lab.stored("10.0.0.0/30")), Some((1000, 1000)));
    block_on(lab.ipam.release_by_handle(&HandleId::new("h"))).expect("released");
    assert_eq!(seqs(lab.stored("10.0.0.0/30")), Some((1001, 1000)));
    lab.wait(60);
    block_on(lab.ipam.collect_cold(&Config { cooldown_seconds: 60, ..Config::default() }, cidr("10.0.0.0/30"))).expect("collected");
    assert!(lab.stored("10.0.0.0/30").is_some_and(|b| b.is_empty()));
}

#[test]
fn col_04_col_05_col_09_col_10_collecting_writes_once_or_not_at_all() {
    let lab = Lab::new(30);
    lab.block("10.0.0.0/26", None, &[("cold", 1), ("live", 1)]);
    lab.release(&[exact("10.0.0.0", "cold", 1000)]);
    let config = Config { cooldown_seconds: 30, ..Config::default() };
    let collect = || block_on(lab.ipam.collect_cold(&config, cidr("10.0.0.0/26"))).expect("ran");
    let updates = || lab.store.requests().get(&(ipam::mem::Verb::Update, "IPAMBlock")).copied();
    lab.wait(29);
    let before = (updates(), lab.stored("10.0.0.0/26"));
    assert_eq!(collect(), ipam::cold::Collected::default());
    assert_eq!((updates(), lab.stored("10.0.0.0/26")), before, "COL-05, COL-10: reading collects in its own copy only");
    lab.wait(1);
    assert_eq!(collect(), ipam::cold::Collected { ips: vec![ip("10.0.0.0")], block_deleted: false });
    let block = lab.stored("10.0.0.0/26").expect("there");
    assert_eq!((block.in_use(), block.attributes.len(), block.unallocated.last(), block.seq), (vec![ip("10.0.0.1")], 1, Some(&0), 1002));
    // COL-09: nobody's block goes with the last address that cools.
    lab.release(&[exact("10.0.0.1", "live", 1000)]);
    lab.wait(30);
    assert_eq!(collect(), ipam::cold::Collected { ips: vec![ip("10.0.0.1")], block_deleted: true });
    assert!(lab.stored("10.0.0.0/26").is_none());
    assert_eq!(collect(), ipam::cold::Collected::default(), "a block that is gone is no error");
}

#[test]
fn aff_01_aff_02_aff_10_aff_16_giving_one_block_back() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 1)]);
    let give =
        |must_be_empty, seq| block_on(lab.ipam.release_block_affinity(&host("a"), cidr("10.0.0.0/30"), Conditions { must_be_empty, seq }));
    let before = lab.stored("10.0.0.0/30");
    assert_eq!(give(true, None), Err(GiveBackError::NotEmpty));
    assert_eq!(give(true, Some(1)), Err(GiveBackError::Stale));
    assert_eq!(lab.stored("10.0.0.0/30"), before, "nothing was written");
    // AFF-16: not ours: the stale row goes, the block stays.
    lab.put::<AffinityKind>((host("b"), cidr("10.0.0.0/30")), Affinity { state: AffinityState::Confirmed, indexed: true });
    let theirs = block_on(lab.ipam.release_block_affinity(&host("b"), cidr("10.0.0.0/30"), Conditions::default()));
    assert_eq!((theirs, lab.stored("10.0.0.0/30")), (Ok(GaveBack::NotOurs), before));
    // AFF-10: allowed although not empty.
    assert_eq!(give(false, None), Ok(GaveBack::Ownership));
    let block = lab.stored("10.0.0.0/30").expect("there");
    assert_eq!((block.affinity, block.claim_time, block.seq), (None, None, 1001));
    assert!(lab.store.rows::<AffinityKind>().is_empty());
    lab.block("10.0.0.4/30", Some("host:a"), &[]);
    let empty =
        block_on(lab.ipam.release_block_affinity(&host("a"), cidr("10.0.0.4/30"), Conditions { must_be_empty: true, seq: Some(1000) }));
    assert_eq!((empty, lab.stored("10.0.0.4/30")), (Ok(GaveBack::Block), None));
}

#[test]
fn aff_18_a_stop_in_the_middle_is_finished_by_the_next_attempt() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[]);
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/30")), Some(StoreError::Unavailable("cut".into())));
    let give = || block_on(lab.ipam.release_block_affinity(&host("a"), cidr("10.0.0.0/30"), Conditions { must_be_empty: true, seq: None }));
    assert!(give().is_err_and(|e| e.unknown()));
    assert_eq!(lab.store.rows::<AffinityKind>()[0].value.state, AffinityState::PendingDeletion, "before the block is touched");
    lab.faulty.fail(row_name::<BlockKind>(&cidr("10.0.0.0/30")), None);
    assert_eq!(give(), Ok(GaveBack::Block));
    assert!(lab.store.rows::<AffinityKind>().is_empty());
}

#[test]
fn cooling_addresses_keep_a_block_and_a_broken_configuration_keeps_everything() {
    let lab = Lab::new(60);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 1)]);
    lab.release(&[exact("10.0.0.0", "h", 1000)]);
    let give = || block_on(lab.ipam.release_block_affinity(&host("a"), cidr("10.0.0.0/30"), Conditions { must_be_empty: true, seq: None }));
    assert_eq!(give(), Err(GiveBackError::NotEmpty));
    lab.put::<ConfigKind>((), Config { max_blocks_per_host: 3, ..Config::default() });
    assert!(matches!(give(), Err(GiveBackError::Config(_))), "what has cooled cannot be told");
    assert!(block_on(lab.ipam.release_ips(&[exact("10.0.0.0", "h", 1000)])).is_err());
    lab.put::<ConfigKind>((), Config { cooldown_seconds: 60, ..Config::default() });
    lab.wait(60);
    assert_eq!(give(), Ok(GaveBack::Block));
}

#[test]
fn aff_06_aff_07_aff_15_aff_20_releasing_a_host() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[]);
    lab.block("10.0.0.4/30", Some("host:a"), &[("h", 1)]);
    lab.block("fd00::/126", Some("host:a"), &[]);
    lab.block("10.0.0.8/30", Some("host:b"), &[]);
    lab.put::<AffinityKind>((host("a"), cidr("10.0.1.0/30")), Affinity { state: AffinityState::Pending, indexed: false });
    let report = block_on(lab.ipam.release_host("a", true)).expect("listed");
    assert!(!report.complete());
    let left: Vec<String> = lab.store.rows::<BlockKind>().iter().map(|r| r.key.to_string()).collect();
    assert_eq!(left, ["10.0.0.4/30", "10.0.0.8/30"]);
    assert_eq!(lab.store.rows::<AffinityKind>().len(), 2, "the row without block is gone, indexed or not");
    assert!(block_on(lab.ipam.release_host("nobody", true)).expect("listed").complete());
    assert!(block_on(lab.ipam.release_host("a", false)).expect("listed").complete());
    assert_eq!(lab.stored("10.0.0.4/30").map(|b| b.affinity), Some(None));
}

#[test]
fn del_01_del_02_del_03_del_05_del_06_half_deleted_rows_and_identities() {
    let lab = Lab::new(0);
    lab.block("10.0.0.0/30", Some("host:a"), &[("h", 1)]);
    let (row, _) = lab.store.peek::<HandleKind>(&HandleId::new("h")).expect("there");
    lab.store.put::<HandleKind>(row.clone(), true);
    block_on(async {
        let table: &dyn Fn() -> MemStore = &|| lab.store.clone();
        assert_eq!(Table::<HandleKind>::get(&table(), &row.key).await, Ok(None));
        assert_eq!(Table::<HandleKind>::list(&table(), &(), Default::default()).await, Ok(vec![]));
        assert_eq!(Table::<HandleKind>::half_deleted(&table()).await, Ok(vec![row.clone()]));
        assert_eq!(Table::<HandleKind>::create(&table(), &row.key, row.value.clone()).await, Err(StoreError::Exists));
        Table::<HandleKind>::purge(&table(), &row).await.expect("purged");
        let first = Table::<HandleKind>::create(&table(), &row.key, row.value.clone()).await.expect("created");
        Table::<HandleKind>::delete(&table(), &first).await.expect("deleted");
        let second = Table::<HandleKind>::create(&table(), &row.key, row.value.clone()).await.expect("created");
        assert_eq!(Table::<HandleKind>::delete(&table(), &first).await, Err(StoreError::Absent), "another identity");
        let changed = Row { value: Handle { blocks: Default::default(), ..row.value.clone() }, ..second.clone() };
        let third = Table::<HandleKind>::update(&table(), changed).await.expect("updated");
        assert_eq!(Table::<HandleKind>::delete(&table(), &second).await, Err(StoreError::Conflict));
        Table::<HandleKind>::delete(&table(), &third).await.expect("deleted");
    });
}

#[test]
fn cfg_02_cfg_13_reading_the_configuration() {
    let store = MemStore::new();
    let ipam = Ipam::new(store.clone(), SimClock::new(start()));
    assert_eq!(block_on(ipam.get_config()), Ok(Config::default()));
    assert!(store.rows::<ConfigKind>().is_empty());
    let lab = Lab::new(0);
    lab.put::<ConfigKind>((), Config { auto_allocate_blocks: false, ..Config::default() });
    assert!(block_on(lab.ipam.get_config()).is_err_and(|e| e.to_string().contains("autoAllocateBlocks")));
}
