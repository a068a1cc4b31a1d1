//! A day of churn with a clock that is moved: what is remembered does not grow.

use std::fmt::Write as _;

use ipam_tests::script::World;

/// Resident memory, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

/// Each half hour a new node with eight blocks of leaked, used and cooling addresses of new pods comes, and one goes.
#[test]
fn memory_stays_flat_over_a_day_of_churn() {
    let mut world = World::default();
    world.say("node stays\npool p 10.0.0.0/8\ncooldown 120\nrate 0 1").expect("said");
    let mut after = Vec::new();
    // Some days: growth must show beside what an allocator keeps.
    for half_hour in 0..48 * 4 {
        let mut lines = format!("node n{half_hour}\n");
        for b in 0..8 {
            let block = format!("10.{}.{}.0/28", half_hour % 200, b * 2);
            let _ = write!(lines, "block {block} n{half_hour}");
            for o in 0..12 {
                let _ = write!(lines, " .{o}=h-{half_hour}-{b}-{o}:ns/p-{half_hour}-{b}-{o}@n{half_hour}");
            }
            lines.push('\n');
            for o in (0..12).step_by(3) {
                let _ = writeln!(lines, "pod ns/p-{half_hour}-{b}-{o} on n{half_hour} ips 10.{}.{}.{o}", half_hour % 200, b * 2);
            }
        }
        world.say(&lines).expect("said");
        world.say("step\nwait 16m\nwait 14m").expect("held");
        if half_hour >= 2 {
            let old = half_hour - 2;
            let mut gone = format!("node n{old} gone\n");
            for b in 0..8 {
                for o in (0..12).step_by(3) {
                    let _ = writeln!(gone, "pod ns/p-{old}-{b}-{o} gone");
                }
            }
            world.say(&gone).expect("said");
            world.say("step\nwait 3m\nwait 3m").expect("held");
        }
        world.forget_events();
        if half_hour % 48 == 47 {
            after.push((resident(), world.view.cache.blocks().count(), world.ledger.leaks().count()));
        }
    }
    println!("{after:?}");
    let (first, last) = (after[0], after[after.len() - 1]);
    assert_eq!((first.1, first.2), (last.1, last.2), "as many blocks and leaks at the end of each day");
    assert!(last.0 < first.0 + first.0 / 10 + (4 << 20), "memory grew from {} to {}", first.0, last.0);
}
