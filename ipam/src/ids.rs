//! Names and CIDRs as types.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipam_accounting::facts::sanitise;
use ipam_accounting::set::{addr_at, ordinal_of, size};
use ipnet::IpNet;

/// CIDR of a block: masked, so that two spellings are one (NAM-10). At most 65 536 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCidr(IpNet);

/// A CIDR that cannot be a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// It is not a CIDR.
    #[error("{0:?} is not a CIDR")]
    NotACidr(String),
    /// It has more addresses than a block can have.
    #[error("{0} has more than 65536 addresses")]
    TooLarge(IpNet),
}

impl BlockCidr {
    /// The block of this CIDR; host bits are masked off.
    ///
    /// # Errors
    /// More than 65 536 addresses.
    pub fn new(net: IpNet) -> Result<Self, CidrError> {
        if size(net) > 1 << 16 { Err(CidrError::TooLarge(net)) } else { Ok(Self(net.trunc())) }
    }

    /// As a CIDR.
    pub fn net(self) -> IpNet {
        self.0
    }

    /// Number of addresses.
    pub fn size(self) -> u32 {
        size(self.0) as u32
    }

    /// The address at an ordinal; `None` outside.
    pub fn ip(self, ordinal: u32) -> Option<IpAddr> {
        addr_at(self.0, ordinal.into())
    }

    /// The ordinal of an address; `None` outside.
    pub fn ordinal(self, ip: IpAddr) -> Option<u32> {
        ordinal_of(self.0, ip).map(|o| o as u32)
    }
}

impl fmt::Display for BlockCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BlockCidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        Self::new(text.parse().map_err(|_| CidrError::NotACidr(text.into()))?)
    }
}

/// A handle id without what follows a carriage return (wire-format.md 2.5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(String);

impl HandleId {
    /// The sanitised form of any text.
    pub fn new(text: &str) -> Self {
        Self(sanitise(text).into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a handle or a host cannot be used in an assignment (D-32, D-70).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{argument} {value:?} {why}")]
pub struct NameError {
    /// The argument.
    pub argument: &'static str,
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Checks a handle that an assignment is to store: it becomes, in lower case, the name of an object.
///
/// # Errors
/// It cannot be such a name.
pub fn check_handle(handle: &str) -> Result<(), NameError> {
    let error = |why| Err(NameError { argument: "handle", value: handle.into(), why });
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    match handle {
        "" => error("is empty"),
        h if h.len() > 253 => error("is longer than 253 characters"),
        h if !h.chars().all(inner) => error("has characters that no object name can have"),
        h if !end(h.chars().next()) || !end(h.chars().last()) || h.contains("..") => {
            error("does not begin and end its parts with a letter or digit")
        }
        _ => Ok(()),
    }
}

/// Checks the name of a host.
///
/// # Errors
/// Empty, longer than 253, or with characters outside `A-Za-z0-9._-`.
pub fn check_host(host: &str) -> Result<(), NameError> {
    let error = |why| Err(NameError { argument: "host", value: host.into(), why });
    match host {
        "" => error("is empty"),
        h if h.len() > 253 => error("is longer than 253 characters"),
        h if !h.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) => error("has characters outside A-Za-z0-9._-"),
        _ => Ok(()),
    }
}

impl fmt::Display for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Owner of a block; as text `host:<node>` or `virtual:<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A node.
    Host(String),
    /// Something that is no node, such as `load-balancer`.
    Virtual(String),
}

impl Owner {
    /// From its text; any other text names nobody (BLK-21).
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "host" => Some(Self::Host(name.into())),
            "virtual" => Some(Self::Virtual(name.into())),
            _ => None,
        }
    }

    /// Name of the node or virtual owner.
    pub fn name(&self) -> &str {
        match self {
            Self::Host(name) | Self::Virtual(name) => name,
        }
    }

    /// `host` or `virtual`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Host(_) => "host",
            Self::Virtual(_) => "virtual",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nam_10_cidrs_are_masked_and_bounded() {
        let block: BlockCidr = "10.0.0.5/26".parse().expect("a block");
        assert_eq!(block.to_string(), "10.0.0.0/26");
        assert!("10.0.0.0/15".parse::<BlockCidr>().is_err() && "10.0.0.0/16".parse::<BlockCidr>().is_ok());
        assert!("fd00::/111".parse::<BlockCidr>().is_err() && "x".parse::<BlockCidr>().is_err());
    }

    #[test]
    fn blk_21_affinity_text() {
        assert_eq!(Owner::parse("host:n1"), Some(Owner::Host("n1".into())));
        assert_eq!(Owner::parse("virtual:load-balancer").map(|o| o.to_string()).as_deref(), Some("virtual:load-balancer"));
        assert_eq!((Owner::parse("n1"), Owner::parse("other:n1"), Owner::parse("")), (None, None, None));
    }
}
