//! The only crate that knows Kubernetes: wire types of both API groups, names and labels, dumps.
//!
//! | module | what |
//! |---|---|
//! | [`group`] | the two API groups |
//! | [`names`] | object names, labels, handle ids |
//! | [`wire`] | stored objects ↔ rows; everything that we do not model survives |
//! | [`facts`] | the few facts we keep of pods, nodes, VMs |
//! | [`update`] | what a feed says |
//! | `bad` | what objects that were not understood hold |
//! | [`text`] | durations and times |
//! | [`live`] | a live API server as a store |
//! | [`dump`] | `kubectl get -o yaml` as a store, and back |

mod bad;
pub mod dump;
mod explained;
pub mod facts;
pub mod group;
pub mod live;
pub mod names;
pub mod opt_out;
pub mod text;
pub mod update;
pub mod wire;

pub use dump::{Dump, DumpError, load};
pub use explained::explained;
pub use group::Group;
pub use live::KubeStore;
pub use update::Update;
