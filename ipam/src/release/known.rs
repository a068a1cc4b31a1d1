//! Rows of handles that were read for releases.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::Release;
use crate::ids::HandleId;
use crate::model::HandleKind;
use crate::store::{Row, StoreError};

/// Rows of handles as they were before a release, or why they could not be read.
pub(super) type Handles = BTreeMap<HandleId, Result<Option<Row<HandleKind>>, StoreError>>;

/// From how many handles on one list of all of them is cheaper (performance.md).
const BULK: usize = 500;

/// Rows of handles whose addresses will be released soon, so that a list of all handles serves more than one call.
///
/// A row serves only for allocations that were known before it was listed: they were counted in it, and counts are only taken from the
/// row in which they were (docs/decisions.md 19).
#[derive(Clone, Debug, Default)]
pub struct KnownHandles {
    soon: Vec<Release>,
    listed: BTreeMap<HandleId, Option<Row<HandleKind>>>,
    before: BTreeSet<(IpAddr, Option<i64>)>,
}

impl KnownHandles {
    /// Says which releases come next.
    pub fn expect(&mut self, soon: Vec<Release>) {
        self.soon = soon;
    }

    /// Whether a list of all handles is cheaper than reading these, and what comes soon, one by one.
    pub(super) fn wants_list(&self, releases: &[Release]) -> bool {
        let unknown = |r: &&Release| r.handle().is_some_and(|h| !self.listed.contains_key(h));
        if !releases.iter().any(|r| unknown(&r)) {
            return false;
        }
        let all: BTreeSet<_> = releases.iter().chain(&self.soon).filter(unknown).filter_map(Release::handle).collect();
        all.len() >= BULK
    }

    /// Keeps what the list says of what is released now or soon; what was known before is forgotten.
    pub(super) fn learn(&mut self, rows: Vec<Row<HandleKind>>, releases: &[Release]) {
        let mut rows: BTreeMap<_, _> = rows.into_iter().map(|r| (r.key.clone(), r)).collect();
        let all = || releases.iter().chain(&self.soon);
        self.before = all().map(Release::allocation).collect();
        self.listed = all().filter_map(Release::handle).map(|h| (h.clone(), rows.remove(h))).collect();
    }

    /// The rows of the handles of these, once.
    pub(super) fn take(&mut self, releases: &[Release]) -> Handles {
        let mut taken = Handles::new();
        let newer: BTreeSet<_> = releases.iter().filter(|r| !self.before.contains(&r.allocation())).filter_map(Release::handle).collect();
        for handle in releases.iter().filter_map(Release::handle) {
            let listed = self.listed.remove(handle).filter(|_| !newer.contains(handle));
            taken.extend(listed.map(|row| (handle.clone(), Ok(row))));
        }
        taken
    }
}
