//! Masking and qualification: the tables of pools.md and the POOL, PLST, WIN-07 rows.

use super::*;
use crate::store::{Extra, Revision, Uid};

fn net(s: &str) -> IpNet {
    s.parse().expect("a CIDR")
}

fn plain(cidr: &str) -> Pool {
    let parsed = cidr.parse::<IpNet>().map_err(|_| cidr.to_owned());
    let v6 = matches!(parsed, Ok(IpNet::V6(_)));
    Pool {
        cidr: parsed,
        block_size: if v6 { 122 } else { 26 },
        node_selector: "all()".into(),
        namespace_selector: String::new(),
        allowed_uses: vec!["Workload".into(), "Tunnel".into()],
        manual: false,
        disabled: false,
        deleting: false,
        allocatable: Allocatable::Unstated,
    }
}

fn rows(pools: &[(&str, Pool)]) -> Vec<Row<PoolKind>> {
    let row = |(name, pool): &(&str, Pool)| Row {
        key: (*name).into(),
        value: pool.clone(),
        revision: Revision("1".into()),
        uid: Uid("u".into()),
        extra: Extra::NONE,
    };
    pools.iter().map(row).collect()
}

fn labels(text: &str) -> Labels {
    text.split(',').filter(|p| !p.is_empty()).filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

fn names(found: &[Enabled]) -> Vec<&str> {
    found.iter().map(|e| e.name.as_str()).collect()
}

struct Ask<'a> {
    node: &'a str,
    namespace: Option<&'a str>,
    named: &'a [&'a str],
    intended_use: &'a str,
    reserve: Option<(u32, u32)>,
    family: Family,
}

const ASK: Ask<'static> = Ask { node: "", namespace: None, named: &[], intended_use: "Workload", reserve: None, family: Family::V4 };

fn claim(pools: &[(&str, Pool)], ask: &Ask<'_>) -> Result<PoolClaim, PoolError> {
    let named: Vec<IpNet> = ask.named.iter().map(|n| net(n)).collect();
    let reserve = ask.reserve.map(|(first, last)| HostReserve { first, last, handle: "w".into(), note: String::new() });
    let (node, namespace) = (labels(ask.node), ask.namespace.map(labels));
    let wanted = Wanted {
        family: ask.family,
        intended_use: ask.intended_use,
        named: &named,
        host: "host-a",
        node: &node,
        namespace: namespace.as_ref(),
        reserve: reserve.as_ref(),
    };
    qualify(&rows(pools), &wanted)
}

fn taken(pools: &[(&str, Pool)], ask: &Ask<'_>) -> Vec<String> {
    claim(pools, ask).map(|c| c.pools.into_iter().map(|p| p.name).collect()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn plst_01_plst_02_plst_03_plst_04_plst_05_plst_06_plst_09_enabled() {
    let pools = rows(&[
        ("z", plain("10.0.0.0/24")),
        ("deleting", Pool { deleting: true, ..plain("10.1.0.0/24") }),
        ("disabled", Pool { disabled: true, ..plain("10.2.0.0/24") }),
        ("bad", plain("invalid-cidr")),
        ("six", plain("2001:db8::/64")),
        ("no", Pool { allocatable: Allocatable::False, ..plain("10.3.0.0/24") }),
        ("a", Pool { allocatable: Allocatable::True, ..plain("10.4.0.0/24") }),
    ]);
    assert_eq!(names(&enabled(&pools, Family::V4)), ["a", "z"]);
    assert_eq!(names(&enabled(&pools, Family::V6)), ["six"]);
}

#[test]
fn masking_decides_as_the_table_says() {
    let is_enabled = |p: Allocatable, m: Option<Pool>| {
        let mut pools = vec![("p", Pool { allocatable: p, ..plain("10.0.0.0/24") })];
        pools.extend(m.map(|m| ("m", m)));
        names(&enabled(&rows(&pools), Family::V4)).contains(&"p")
    };
    use Allocatable::{False, True, Unstated};
    // D-11: any overlap masks: equal, inside, around.
    for cidr in ["10.0.0.0/24", "10.0.0.128/25", "10.0.0.0/16"] {
        let m = || plain(cidr);
        assert!(is_enabled(Unstated, Some(m())), "two new pools do not mask each other");
        assert!(is_enabled(Unstated, Some(Pool { disabled: true, ..m() })));
        assert!(is_enabled(Unstated, Some(Pool { allocatable: False, ..m() })));
        assert!(!is_enabled(Unstated, Some(Pool { allocatable: True, ..m() })));
        assert!(!is_enabled(Unstated, Some(Pool { deleting: true, ..m() })));
        assert!(!is_enabled(Unstated, Some(Pool { deleting: true, allocatable: False, ..m() })));
        assert!(is_enabled(Unstated, Some(Pool { deleting: true, disabled: true, ..m() })));
        assert!(is_enabled(True, Some(Pool { allocatable: True, ..m() })), "taken at its word");
        assert!(is_enabled(True, Some(Pool { deleting: true, ..m() })));
        assert!(!is_enabled(False, None));
    }
    assert!(is_enabled(Unstated, Some(Pool { allocatable: True, ..plain("10.0.1.0/24") })));
    assert!(is_enabled(Unstated, None));
}

#[test]
fn pool_01_pool_02_selectors_and_requests_in_both_families() {
    type Case = (bool, &'static str, &'static str, &'static [usize], Option<&'static [&'static str]>);
    let rows: [Case; 14] = [
        (true, "", "", &[], Some(&["p1", "p2"])),
        (true, "", "", &[1], Some(&["p1"])),
        (true, "foo=='bar'", "foo!='bar'", &[], Some(&["p1"])),
        (true, "foo=='bar'", "foo!='bar'", &[1], Some(&["p1"])),
        (true, "foo!='bar'", "all()", &[], Some(&["p2"])),
        (true, "foo!='bar'", "", &[1], Some(&["p1"])),
        (true, "foo=='bar'", "", &[2], Some(&["p2"])),
        (false, "", "", &[], Some(&["p2"])),
        (false, "", "", &[1], None),
        (false, "", "", &[2], Some(&["p2"])),
        (false, "", "foo=='bar'", &[], Some(&["p2"])),
        (false, "", "foo=='bar'", &[2], Some(&["p2"])),
        (false, "", "foo!='bar'", &[], None),
        (false, "", "foo!='bar'", &[2], Some(&["p2"])),
    ];
    for (family, one, two, asked) in [
        (Family::V4, "10.0.0.1/24", "20.0.0.0/24", ["10.0.0.0/24", "20.0.0.0/24"]),
        (Family::V6, "5001:0000:0000:001a:0000:0000:0000:0000/64", "5001:0:0:1b::/64", ["5001:0:0:1a::/64", "5001:0:0:1b::/64"]),
    ] {
        for (i, (on, s1, s2, named, want)) in rows.iter().enumerate() {
            let pools = [
                ("p1", Pool { disabled: !on, node_selector: (*s1).into(), ..plain(one) }),
                ("p2", Pool { node_selector: (*s2).into(), ..plain(two) }),
            ];
            let named: Vec<&str> = named.iter().map(|n| asked[n - 1]).collect();
            let got = claim(&pools, &Ask { node: "foo=bar", named: &named, family, ..ASK }).ok();
            let got = got.as_ref().map(|c| names(&c.pools));
            assert_eq!(got.as_deref(), *want, "row {i} {family:?}");
        }
    }
}

#[test]
fn pool_03_pool_04_pool_06_pool_08_namespace_and_node_selectors() {
    let env = "environment=='production'";
    for (node_sel, node, ns_sel, ns, want) in [
        ("", "", "", "", true),
        ("", "", env, "environment=production", true),
        ("", "", env, "environment=development", false),
        ("zone=='us-west'", "zone=us-west", env, "environment=production", true),
        ("zone=='us-west'", "zone=us-west", env, "environment=development", false),
        ("zone=='us-west'", "zone=us-east", env, "environment=production", false),
        ("", "", "environment=='production' && tier=='frontend'", "environment=production,tier=frontend", true),
        ("", "", "environment=='production' && tier=='frontend'", "environment=production,tier=backend", false),
    ] {
        let pools = [("p", Pool { node_selector: node_sel.into(), namespace_selector: ns_sel.into(), ..plain("10.0.0.0/24") })];
        assert_eq!(claim(&pools, &Ask { node, namespace: Some(ns), ..ASK }).is_ok(), want, "{node_sel} {node} {ns_sel} {ns}");
    }
    let sel = |s: &str, cidr: &str| Pool { namespace_selector: s.into(), ..plain(cidr) };
    let pools = [("a", sel(env, "10.0.0.0/24")), ("b", sel("environment=='development'", "10.1.0.0/24")), ("c", plain("10.2.0.0/24"))];
    assert_eq!(taken(&pools, &Ask { namespace: Some("environment=production"), ..ASK }), ["a", "c"]);
    assert_eq!(
        taken(&pools, &Ask { namespace: Some("environment=production"), named: &["10.1.0.0/24"], ..ASK }),
        ["b"],
        "a request overrides"
    );
    let pools = [("has", sel("has(region)", "10.0.0.0/24")), ("none", plain("10.1.0.0/24")), ("not", sel("!has(region)", "10.2.0.0/24"))];
    assert_eq!(taken(&pools, &ASK), ["none", "not"], "no namespace: no labels");
    let claim = claim(&pools, &ASK).expect("qualified");
    assert_eq!(claim.not_taken, [("has".to_owned(), "its namespace selector does not select the namespace")]);
}

#[test]
fn pool_05_pool_07_pool_09_pool_10_pool_11_pool_12_pool_14_what_does_not_qualify() {
    let broken = |node: &str, ns: &str| [("p", Pool { node_selector: node.into(), namespace_selector: ns.into(), ..plain("10.0.0.0/24") })];
    assert!(matches!(claim(&broken("x ==", ""), &ASK), Err(PoolError::BadSelector(..))));
    assert!(matches!(claim(&broken("", "x =="), &ASK), Err(PoolError::BadSelector(..))));
    let manual = [("m", Pool { manual: true, ..plain("10.0.0.0/24") })];
    assert!(matches!(claim(&manual, &ASK), Err(PoolError::NoneForNode(host)) if host == "host-a"));
    assert_eq!(taken(&manual, &Ask { named: &["10.0.0.0/24"], ..ASK }), ["m"]);
    let sized = |n| Pool { block_size: n, ..plain("10.0.0.0/24") };
    let reserve = Some((3, 1));
    assert!(matches!(claim(&[("p", sized(30))], &Ask { reserve, ..ASK }), Err(PoolError::NoQualifiedPool(_))));
    let two = [("p", sized(26)), ("q", Pool { block_size: 31, ..plain("20.0.0.0/24") })];
    assert_eq!(taken(&two, &Ask { reserve, ..ASK }), ["p"]);
    assert_eq!(claim(&two, &Ask { reserve, named: &["20.0.0.0/24"], ..ASK }), Err(PoolError::Unknown(net("20.0.0.0/24"))));
    assert_eq!(claim(&two, &Ask { reserve: Some((0, 0)), ..ASK }), Err(PoolError::EmptyReserve));
    let with_bad = claim(&[("p", plain("10.0.0.0/24")), ("bad", plain("rubbish"))], &ASK).expect("a pool that cannot be read stops nobody");
    assert_eq!((names(&with_bad.pools), with_bad.not_taken), (vec!["p"], vec![("bad".to_owned(), "its CIDR cannot be read")]));
    assert_eq!(claim(&two, &Ask { named: &["10.0.0.0/24", "40.0.0.0/24"], ..ASK }), Err(PoolError::Unknown(net("40.0.0.0/24"))));
    assert_eq!(claim(&two, &Ask { named: &["fd00::/64"], ..ASK }), Err(PoolError::WrongFamily(net("fd00::/64"), 4)));
    assert!(matches!(claim(&[("six", plain("fd00::/112"))], &ASK), Err(PoolError::NoQualifiedPool(_))));
}

#[test]
fn pool_24_pool_25_pool_26_which_empty_blocks_are_given_up() {
    let pools = [
        ("deselected", Pool { node_selector: "foo=='x'".into(), ..plain("10.0.0.0/24") }),
        ("use", Pool { allowed_uses: vec!["Tunnel".into()], ..plain("10.1.0.0/24") }),
        ("namespace", Pool { namespace_selector: "has(x)".into(), ..plain("10.2.0.0/24") }),
        ("manual", Pool { manual: true, ..plain("10.3.0.0/24") }),
        ("taken", plain("10.4.0.0/24")),
        ("disabled", Pool { disabled: true, node_selector: "foo=='x'".into(), ..plain("10.5.0.0/24") }),
        ("broken", Pool { manual: true, node_selector: "foo ==".into(), ..plain("10.7.0.0/24") }),
    ];
    let claim = claim(&pools, &Ask { node: "foo=bar", ..ASK }).expect("qualified");
    let node = labels("foo=bar");
    let gives_up = |c: &str| claim.gives_up(c.parse().expect("a CIDR"), &node);
    assert!(gives_up("10.0.0.0/26"));
    for kept in ["10.1.0.0/26", "10.2.0.0/26", "10.3.0.0/26", "10.4.0.0/26", "10.5.0.0/26", "10.6.0.0/26", "10.7.0.0/26"] {
        assert!(!gives_up(kept), "{kept}");
    }
    assert!(claim.may_use("10.4.0.64/26".parse().expect("a CIDR")) && !claim.may_use("10.1.0.0/26".parse().expect("a CIDR")));
}

#[test]
fn pool_30_pool_33_pool_35_uses() {
    let w = Pool { allowed_uses: vec!["Workload".into()], ..plain("192.168.2.0/24") };
    let t = Pool { allowed_uses: vec!["Tunnel".into()], ..plain("192.168.3.0/24") };
    let both = [("t", t.clone()), ("w", w.clone())];
    assert!(matches!(claim(&both, &Ask { named: &["192.168.3.0/24"], ..ASK }), Err(PoolError::NoQualifiedPool(_))));
    assert_eq!(taken(&both, &ASK), ["w"]);
    assert_eq!(taken(&both, &Ask { intended_use: "Tunnel", named: &["192.168.3.0/24"], ..ASK }), ["t"]);
    assert!(matches!(claim(&[("t", t)], &ASK), Err(PoolError::NoQualifiedPool(_))));
    assert!(matches!(
        claim(&[("p", plain("10.0.0.0/24"))], &Ask { intended_use: "LoadBalancer", ..ASK }),
        Err(PoolError::NoQualifiedPool(_))
    ));
}

#[test]
fn win_07_longest_prefixes() {
    for (n, v4, v6) in [(1, 31, 127), (2, 30, 126), (3, 30, 126), (4, 29, 125), (7, 29, 125), (8, 28, 124), (65, 25, 121)] {
        let reserve = HostReserve { first: n - 1, last: 1, handle: String::new(), note: String::new() };
        assert_eq!((longest_prefix(Family::V4, Some(&reserve)), longest_prefix(Family::V6, Some(&reserve))), (Ok(v4), Ok(v6)), "{n}");
    }
    assert_eq!((longest_prefix(Family::V4, None), longest_prefix(Family::V6, None)), (Ok(32), Ok(128)));
}

#[test]
fn asn_03_asn_05_asn_06_asn_07_asn_08_asn_11_pools_of_explicit_addresses() {
    let pools = rows(&[
        ("w", Pool { allowed_uses: vec!["Workload".into()], manual: true, node_selector: "never == 'x'".into(), ..plain("10.0.0.0/24") }),
        ("d", Pool { disabled: true, ..plain("30.0.0.0/24") }),
        ("p", plain("20.0.0.0/24")),
    ]);
    let find = |ip: &str, wanted| pool_for_assign(&pools, ip.parse().expect("an address"), wanted).map(|(p, b)| (p.name, b.to_string()));
    assert!(matches!(find("1.1.1.1", None), Err(PoolError::NotInPool(_))));
    assert!(find("10.0.0.1", Some("Tunnel")).is_err_and(|e| e.to_string().contains("not allowed for use")));
    assert_eq!(find("10.0.0.70", Some("Workload")), Ok(("w".into(), "10.0.0.64/26".into())), "selectors and mode are not checked");
    assert!(find("10.0.0.3", None).is_ok() && find("20.0.0.1", Some("Tunnel")).is_ok());
    assert!(find("30.0.0.1", None).is_err());
}
