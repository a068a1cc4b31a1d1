//! A live API server as a store.
//!
//! | module | what |
//! |---|---|
//! | [`connection`] | where the server is, and a client for it that never repeats a write |
//! | [`answer`] | what an answer means: written, not written, or not known (D-75) |
//! | [`store`] | [`KubeStore`]: rows by name and by list |
//! | [`discovery`] | which API group the cluster uses |
//! | [`feed`] | following one kind |
//! | [`snapshot`](mod@snapshot) | everything at once, as a dump |

pub mod answer;
pub mod connection;
pub mod discovery;
pub mod feed;
pub mod snapshot;
pub mod store;

pub use connection::{Access, ConnectError, Connection};
pub use feed::{Feed, Told};
pub use snapshot::snapshot;
pub use store::KubeStore;
