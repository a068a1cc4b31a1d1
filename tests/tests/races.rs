//! Many calls at once, taking turns at every store call (RACE). Every order of two is the explorer's business.

use std::collections::BTreeSet;

use futures::executor::block_on;
use futures::future::join_all;
use ipam::HandleId;
use ipam::model::BlockKind;
use ipam_tests::lab::{Lab, net, want};

/// Every affinity is confirmed, and is its block's owner's.
fn matching(lab: &Lab) {
    let blocks: BTreeSet<String> = lab.blocks().into_iter().map(|(cidr, owner)| format!("{owner} {cidr} confirmed")).collect();
    assert_eq!(lab.rows().into_iter().collect::<BTreeSet<_>>(), blocks);
}

#[test]
fn race_01_twice_as_many_hosts_as_blocks() {
    let hosts: Vec<String> = (0..32).map(|n| format!("host-{n}")).collect();
    let lab = Lab::new(&["10.0.0.0/22"], &hosts.iter().map(String::as_str).collect::<Vec<_>>());
    let requests: Vec<_> = hosts.iter().map(|h| want(h, 1).handle(h)).collect();
    let got = block_on(join_all(requests.iter().map(|r| lab.ipam.auto_assign(r))));
    let ips: Vec<_> = got.into_iter().map(|g| g.expect("assigned").v4.expect("asked for").ips).collect();
    assert!(ips.iter().all(|i| i.len() == 1), "exactly one each");
    assert_eq!(ips.iter().flatten().map(|n| n.addr()).collect::<BTreeSet<_>>().len(), 32);
    assert_eq!((lab.rows().len(), lab.blocks().len()), (16, 16));
    matching(&lab);
    for (host, ips) in hosts.iter().zip(&ips) {
        let own = lab.store.rows::<BlockKind>().into_iter().find(|b| b.value.affinity.as_deref() == Some(&format!("host:{host}")));
        assert!(own.is_none_or(|b| b.key.ordinal(ips[0].addr()).is_some()), "{host} owns a block and got {}", ips[0]);
        assert_eq!(lab.count(host), Some(1));
    }
    lab.assert_clean();
}

#[test]
fn race_02_rbh_09_one_host_four_at_once() {
    let lab = Lab::new(&["10.0.0.0/25"], &["a"]);
    let request = want("a", 1).handle("h");
    let got = block_on(join_all((0..4).map(|_| lab.ipam.auto_assign(&request))));
    let ips: BTreeSet<_> = got.into_iter().flat_map(|g| g.expect("assigned").v4.expect("asked for").ips).map(|n| n.addr()).collect();
    assert_eq!((ips.len(), lab.count("h")), (4, Some(4)));
    assert!(lab.blocks().len() <= 2);
    matching(&lab);
    // RBH-09: two releases at once.
    let handle = HandleId::new("h");
    let done = block_on(join_all((0..2).map(|_| lab.ipam.release_by_handle(&handle))));
    let released: usize = done.into_iter().flatten().map(|ips| ips.len()).sum();
    assert_eq!((released, lab.count("h")), (4, None), "each address once");
    lab.assert_clean();
}

#[test]
fn race_03_four_claims_of_one_cidr_by_one_host() {
    let lab = Lab::new(&["10.0.0.0/22"], &["a"]);
    let claims = block_on(join_all((0..4).map(|_| lab.ipam.claim_affinity(net("10.0.0.0/22"), "a"))));
    for claim in claims {
        assert_eq!(claim.map(|(claimed, failed)| (claimed.len(), failed.len())), Ok((16, 0)));
    }
    assert_eq!(lab.rows().len(), 16);
    matching(&lab);
    let given = block_on(join_all((0..4).map(|_| lab.ipam.release_affinity(net("10.0.0.0/22"), "a", false))));
    assert!(given.iter().all(Result::is_ok), "{given:?}");
    assert!(lab.rows().is_empty() && lab.blocks().is_empty());
}
