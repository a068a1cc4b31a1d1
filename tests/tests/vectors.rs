//! Every row of the computed vectors: facts about the reference that ours must equal, with the exceptions that
//! decisions.md names.

use std::net::IpAddr;

use chrono::{TimeDelta, Utc};
use ipam::block::{Attribute, Block, HandleCheck, ReleaseOption, Released};
use ipam::clock::Time;
use ipam::ids::{HandleId, Owner};
use ipam_accounting::facts::{Attrs, sanitise};
use ipam_accounting::reserved::{reserved_in_cidr, reserved_set};
use ipam_accounting::set::Ranges;
use ipam_datastore::names;
use ipam_tests::data;
use ipnet::IpNet;
use serde_json::{Value, json};

fn now() -> Time {
    chrono::DateTime::<Utc>::UNIX_EPOCH + TimeDelta::days(20_000)
}

fn attrs(v: &Value) -> Attrs {
    serde_json::from_value::<Option<Attrs>>(v.clone()).expect("attributes").unwrap_or_default()
}

fn block(v: &Value) -> Block {
    let attribute = |a: &Value| Attribute {
        handle: a["handle"].as_str().map(Into::into),
        active: attrs(&a["active"]),
        alternate: attrs(&a["alternate"]),
        released_at: a["releasedAgeSeconds"].as_f64().map(|age| now() - TimeDelta::milliseconds((age * 1000.0).round() as i64)),
        ..Attribute::default()
    };
    Block {
        cidr: v["cidr"].as_str().expect("a CIDR").parse().expect("a CIDR"),
        affinity: v["affinity"].as_str().map(Into::into),
        claim_time: None,
        allocations: serde_json::from_value(v["allocations"].clone()).expect("allocations"),
        unallocated: serde_json::from_value(v["unallocated"].clone()).expect("unallocated"),
        attributes: v["attributes"].as_array().into_iter().flatten().map(attribute).collect(),
        seq: v["sequenceNumber"].as_i64().expect("a number"),
        seqs: serde_json::from_value(v["sequenceNumberForAllocation"].clone()).expect("numbers"),
    }
}

/// Equal, with ages within a second.
fn same(ours: &Block, theirs: &Block) -> bool {
    let close = |a: &Attribute, b: &Attribute| match (a.released_at, b.released_at) {
        (Some(x), Some(y)) => (x - y).abs() <= TimeDelta::seconds(1),
        (x, y) => x == y,
    };
    let plain = |a: &Attribute| Attribute { released_at: None, ..a.clone() };
    let entries = ours.attributes.len() == theirs.attributes.len()
        && ours.attributes.iter().zip(&theirs.attributes).all(|(a, b)| close(a, b) && plain(a) == plain(b));
    entries && Block { attributes: vec![], ..ours.clone() } == Block { attributes: vec![], ..theirs.clone() }
}

fn option(v: &Value) -> ReleaseOption {
    ReleaseOption {
        ip: v["ip"].as_str().expect("an address").parse().expect("an address"),
        handle: v["handle"].as_str().map_or(HandleCheck::Any, |h| HandleCheck::Is(HandleId::new(h))),
        seq: v["sequenceNumber"].as_i64(),
        owner: None,
    }
}

/// What a step did to our block, in the vectors' form; for a release also which options ours calls stale.
fn step(ours: &mut Block, op: &str, args: &Value, reserved: &Ranges) -> (Value, Vec<IpAddr>) {
    let cooldown = TimeDelta::seconds(args["cooldownSeconds"].as_i64().unwrap_or(0));
    let handle = args["handle"].as_str();
    let owner = args["host"].as_str().map(|h| Owner::Host(h.into())).filter(|_| args["strictAffinity"] == json!(true));
    match op {
        "autoAssign" => {
            let num = args["num"].as_u64().expect("a number") as usize;
            let got = ours.auto_assign(num, handle, &attrs(&args["attrs"]), owner.as_ref(), reserved);
            let ips: Vec<String> = got.iter().flatten().map(ToString::to_string).collect();
            (json!({ "error": got.is_err(), "ips": ips }), vec![])
        }
        "assign" => {
            let ip = args["ip"].as_str().expect("an address").parse().expect("an address");
            (json!({ "error": ours.assign(ip, handle, &attrs(&args["attrs"]), owner.as_ref()).is_err() }), vec![])
        }
        "release" => {
            let options: Vec<_> = args["options"].as_array().into_iter().flatten().map(option).collect();
            let out = ours.release(&options, now(), cooldown).expect("inside");
            let which = |want: fn(&Released) -> bool| out.results.iter().filter(|(_, r)| want(r)).map(|(ip, _)| *ip).collect::<Vec<_>>();
            let mut free = which(|r| *r == Released::AlreadyFree);
            free.sort_by_key(ToString::to_string);
            let counts: serde_json::Map<_, _> = out.counts.iter().map(|(h, n)| (h.to_string(), json!(n))).collect();
            let stale = which(|r| matches!(r, Released::Stale(_)));
            (json!({ "error": !stale.is_empty(), "alreadyFree": free, "countByHandle": counts }), stale)
        }
        "releaseByHandle" => {
            (json!({ "released": ours.release_by_handle(&HandleId::new(handle.expect("a handle")), None, now(), cooldown).len() }), vec![])
        }
        "agePlusCollect" => {
            let age = TimeDelta::seconds(args["ageSeconds"].as_i64().expect("an age"));
            ours.attributes.iter_mut().for_each(|a| a.released_at = a.released_at.map(|t| t - age));
            (json!({ "changed": ours.collect(now(), cooldown) }), vec![])
        }
        other => panic!("unknown operation {other}"),
    }
}

/// The options that differ from their entry before the step: what the reference must have refused.
fn expected_stale(before: &Block, args: &Value) -> Vec<IpAddr> {
    let options: Vec<ReleaseOption> = args["options"].as_array().into_iter().flatten().map(option).collect();
    let mut stale = Vec::new();
    for (i, o) in options.iter().enumerate() {
        let last = !options[i + 1..].iter().any(|later| later.ip == o.ip);
        let ordinal = before.cidr.ordinal(o.ip).expect("inside");
        let Some(entry) = before.entry(ordinal).filter(|a| a.released_at.is_none()) else { continue };
        let wrong_seq = o.seq.is_some_and(|s| s != before.seq_of(ordinal));
        let stored = entry.handle.as_deref().map(sanitise);
        let wrong_handle = matches!(&o.handle, HandleCheck::Is(h) if stored != Some(h.as_str()));
        if last && (wrong_seq || wrong_handle) {
            stale.push(o.ip);
        }
    }
    stale
}

#[test]
fn blk_24_block_traces_equal_the_reference_step_by_step() {
    // Rows where our block differs (D-7, D-8; 7/31: docs/decisions.md), and rows where only our result does.
    let block_differs = [(4, 33), (6, 32), (7, 31), (16, 9), (17, 35), (18, 3), (18, 36), (19, 38)];
    let result_differs = [(6, 35), (14, 5)];
    let (mut rows, mut differing) = (0, 0);
    for trace in data("block-traces.json").as_array().expect("traces") {
        let seed = trace["seed"].as_u64().expect("a seed");
        let reserved = reserved_set(trace["reservations"].as_array().into_iter().flatten().filter_map(Value::as_str)).ranges();
        let mut current = block(&trace["start"]);
        for (i, s) in trace["steps"].as_array().expect("steps").iter().enumerate() {
            let at = (seed, i as u64);
            let (op, args, want) = (s["op"].as_str().expect("a name"), &s["args"], &s["result"]);
            current.seq += 1;
            let before = current.clone();
            let (got, stale) = step(&mut current, op, args, &reserved);
            let theirs = block(&s["after"]);
            rows += 1;
            if op == "release" {
                assert_eq!(stale, expected_stale(&before, args), "{at:?}");
            }
            if block_differs.contains(&at) {
                assert!(!same(&current, &theirs), "{at:?} is said to differ");
                differing += 1;
            } else {
                assert!(same(&current, &theirs), "{at:?} {op}\nours   {current:?}\ntheirs {theirs:?}");
                assert_eq!(current.is_empty(), want["empty"] == json!(true), "{at:?}");
                assert_eq!(json!(current.free(&reserved)), want["free"], "{at:?}");
            }
            let partly = block_differs.contains(&at) || result_differs.contains(&at);
            for (field, value) in got.as_object().expect("an object") {
                let theirs = if want[field].is_null() && field == "countByHandle" { &json!({}) } else { &want[field] };
                assert!(value == theirs || partly, "{at:?} {op} {field}: {value} {theirs}");
            }
            // Ours may differ in a row; the trace goes on from the row's own block.
            current = theirs;
        }
    }
    assert_eq!((rows, differing), (24 * 40, 8));
}

#[test]
fn utl_05_reserved_counts_equal_the_reference() {
    let rows = data("reserved-counts.json");
    for row in rows.as_array().expect("rows") {
        let pool: IpNet = row["pool"].as_str().expect("a CIDR").parse().expect("a CIDR");
        let entries = row["reserved"].as_array().into_iter().flatten().filter_map(Value::as_str);
        assert_eq!(row["error"], json!(false), "{row}");
        assert_eq!(json!(reserved_in_cidr(pool, entries)), row["count"], "{row}");
    }
    assert_eq!(rows.as_array().map(Vec::len), Some(300));
}

#[test]
fn nam_01_names_equal_the_reference() {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for row in data("names.json").as_array().expect("rows") {
        let text = |field: &str| row[field].as_str().unwrap_or_default();
        *seen.entry(text("kind").into()).or_default() += 1;
        match text("kind") {
            "BlockAffinity" => {
                let cidr: IpNet = text("cidr").parse().expect("a CIDR");
                let owner = if text("type") == "virtual" { Owner::Virtual(text("host").into()) } else { Owner::Host(text("host").into()) };
                assert_eq!(names::affinity_name(owner.name(), cidr), text("name"), "{row}");
                assert_eq!(json!(names::affinity_labels(&owner, cidr)), row["labels"], "{row}");
            }
            "IPAMBlock" => {
                let cidr = text("cidr").parse::<IpNet>().expect("a CIDR").trunc();
                assert_eq!((names::cidr_name(cidr).as_str(), cidr.to_string().as_str()), (text("name"), text("storedCidr")), "{row}");
            }
            "IPAMHandle" => assert_eq!(names::handle_name(text("handle")), text("name"), "{row}"),
            _ => {
                let ours = names::vm_handle(text("network"), text("namespace"), text("vm")).expect("room");
                if row["panics"].is_null() {
                    assert_eq!(ours, text("handle"), "{row}");
                } else {
                    let prefix = format!("{}.vmi._", text("network"));
                    let hash = ours.strip_prefix(&prefix).expect("shortened");
                    let known = [
                        "DUUpO6IKb_lm_beDi6jrZPcXI9jylq52EDs0SNrdi0U",
                        "dHwROAR9FWNIkmowS8swRst0f1Zf5qT-5_Cjsg3VgFU",
                        "aQLBaHXTFb32wwIzvxbB4wiFRBrwiu3ffRE5RI5u5pQ",
                    ];
                    assert!(known.contains(&hash), "{row} {ours}");
                }
            }
        }
    }
    assert_eq!(seen.values().sum::<usize>(), 220, "{seen:?}");
}
