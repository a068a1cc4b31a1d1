//! What must not be acted on, because an object that was not understood may have to do with it (D-38).

use std::collections::BTreeSet;

use ipnet::IpNet;

/// The things that bad objects hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holds {
    /// Every handle is held.
    pub all_handles: bool,
    /// These sanitised handle ids are held.
    pub handles: BTreeSet<String>,
    /// Every departed node is held.
    pub all_nodes: bool,
    /// These nodes are held, should they be gone.
    pub nodes: BTreeSet<String>,
    /// Every block is held.
    pub all_blocks: bool,
    /// Nothing is done to these blocks.
    pub blocks: BTreeSet<IpNet>,
}

impl Holds {
    /// Whether nothing of this handle may be released. Names of handle objects are lower case, so letters are
    /// compared ignoring their case: too much held is no harm.
    pub fn handle(&self, handle: &str) -> bool {
        self.all_handles || (!self.handles.is_empty() && self.handles.contains(&handle.to_lowercase()))
    }

    /// Holds a handle.
    pub fn hold_handle(&mut self, handle: &str) {
        self.handles.insert(handle.to_lowercase());
    }

    /// Whether nothing of this departed node may be cleaned up.
    pub fn node(&self, node: &str) -> bool {
        self.all_nodes || self.nodes.contains(node)
    }

    /// Whether nothing may be done to this block.
    pub fn block(&self, cidr: IpNet) -> bool {
        self.all_blocks || self.blocks.contains(&cidr)
    }
}
