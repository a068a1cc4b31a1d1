//! A live API server as a store.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | where the server is, and a client for it that never repeats a write |
//! | [`answer`] | what an answer means: written, not written, or not known (D-75) |
//! | [`store`] | [`KubeStore`]: rows by name and by list |
//! | [`discovery`] | which API group the cluster uses |
//! | [`feed`] | following one kind |
//! | `kinds` | what is told of a kind, decoded |
//! | [`follow`] | following everything |
//! | [`look`](mod@look) | one object, as it is at this moment |
//! | [`traffic`] | numbers of what goes between us and the server |
//! | [`snapshot`](mod@snapshot) | everything at once, as a dump |

pub mod answer;
pub mod connection;
pub mod discovery;
pub mod feed;
pub mod follow;
mod kinds;
pub mod look;
pub mod snapshot;
pub mod store;
pub mod traffic;

pub use connection::{Access, ConnectError, Connection};
pub use feed::{Feed, Told};
pub use follow::{Anew, DISCOVERY, Follower};
pub use kinds::of_kind;
pub use look::{controllers_settings, look, uid};
pub use snapshot::snapshot;
pub use store::KubeStore;
