//! The selector language of node and namespace selectors.
//!
//! `text.parse::<Selector>()` → [`Selector::matches`]; its `Display` is the canonical text. `&&` binds tighter than `||`, `!` tighter than both and
//! takes the whole comparison behind it.

mod lexer;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use lexer::{Token, tokens};

/// Labels of a node or namespace.
pub type Labels = BTreeMap<String, String>;

/// Text that is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a selector: {0}")]
pub struct SelectorError(pub(crate) String);

/// A comparison of a label with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `==`
    Eq,
    /// `!=`; true without the label
    Ne,
    /// `contains`
    Contains,
    /// `starts with`
    StartsWith,
    /// `ends with`
    EndsWith,
}

/// A parsed selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// `all()`, also the empty text.
    All,
    /// `global()`; matches everything, too.
    Global,
    /// `has(label)`
    Has(String),
    /// A comparison.
    Compare(String, Op, String),
    /// `in`
    In(String, BTreeSet<String>),
    /// `not in`; true without the label
    NotIn(String, BTreeSet<String>),
    /// `!`
    Not(Box<Selector>),
    /// `&&` of two or more
    And(Vec<Selector>),
    /// `||` of two or more
    Or(Vec<Selector>),
}

impl Selector {
    /// Whether labels match.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Selector::All | Selector::Global => true,
            Selector::Has(key) => labels.contains_key(key),
            Selector::Compare(key, op, value) => match (labels.get(key), op) {
                (Some(v), Op::Eq) => v == value,
                (v, Op::Ne) => v != Some(value),
                (Some(v), Op::Contains) => v.contains(value.as_str()),
                (Some(v), Op::StartsWith) => v.starts_with(value.as_str()),
                (Some(v), Op::EndsWith) => v.ends_with(value.as_str()),
                (None, _) => false,
            },
            Selector::In(key, set) => labels.get(key).is_some_and(|v| set.contains(v)),
            Selector::NotIn(key, set) => labels.get(key).is_none_or(|v| !set.contains(v)),
            Selector::Not(inner) => !inner.matches(labels),
            Selector::And(parts) => parts.iter().all(|p| p.matches(labels)),
            Selector::Or(parts) => parts.iter().any(|p| p.matches(labels)),
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Ok(Selector::All);
        }
        let mut parser = Parser { tokens, at: 0 };
        let selector = parser.any()?;
        match parser.peek() {
            None => Ok(selector),
            Some(token) => Err(SelectorError(format!("unexpected {token} at the end"))),
        }
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self) -> Result<Token, SelectorError> {
        let token = self.peek().cloned().ok_or_else(|| SelectorError("unexpected end".into()))?;
        self.at += 1;
        Ok(token)
    }

    fn any(&mut self) -> Result<Selector, SelectorError> {
        self.list(&Token::Or, Self::every, Selector::Or)
    }

    fn every(&mut self) -> Result<Selector, SelectorError> {
        self.list(&Token::And, Self::negated, Selector::And)
    }

    fn list(
        &mut self,
        between: &Token,
        part: fn(&mut Self) -> Result<Selector, SelectorError>,
        join: fn(Vec<Selector>) -> Selector,
    ) -> Result<Selector, SelectorError> {
        let first = part(self)?;
        let mut parts = vec![first];
        while self.peek() == Some(between) {
            self.at += 1;
            parts.push(part(self)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { join(parts) })
    }

    /// An even run of `!` cancels out.
    fn negated(&mut self) -> Result<Selector, SelectorError> {
        let mut negate = false;
        while self.peek() == Some(&Token::Not) {
            self.at += 1;
            negate = !negate;
        }
        let inner = self.primary()?;
        Ok(if negate { Selector::Not(Box::new(inner)) } else { inner })
    }

    fn primary(&mut self) -> Result<Selector, SelectorError> {
        match self.take()? {
            Token::All => Ok(Selector::All),
            Token::Global => Ok(Selector::Global),
            Token::Has(key) => Ok(Selector::Has(key)),
            Token::Open => {
                let inner = self.any()?;
                match self.take()? {
                    Token::Close => Ok(inner),
                    other => Err(SelectorError(format!("expected ), not {other}"))),
                }
            }
            Token::Label(key) => self.comparison(key),
            other => Err(SelectorError(format!("unexpected {other}"))),
        }
    }

    fn comparison(&mut self, key: String) -> Result<Selector, SelectorError> {
        let op = match self.take()? {
            Token::Eq => Op::Eq,
            Token::Ne => Op::Ne,
            Token::Contains => Op::Contains,
            Token::StartsWith => Op::StartsWith,
            Token::EndsWith => Op::EndsWith,
            Token::In => return Ok(Selector::In(key, self.set()?)),
            Token::NotIn => return Ok(Selector::NotIn(key, self.set()?)),
            other => return Err(SelectorError(format!("expected an operator after {key}, not {other}"))),
        };
        match self.take()? {
            Token::Text(value) => Ok(Selector::Compare(key, op, value)),
            other => Err(SelectorError(format!("expected a quoted text, not {other}"))),
        }
    }

    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        let mut set = BTreeSet::new();
        match self.take()? {
            Token::OpenSet => {}
            other => return Err(SelectorError(format!("expected a set, not {other}"))),
        }
        loop {
            match self.take()? {
                Token::CloseSet => return Ok(set),
                Token::Text(value) => {
                    set.insert(value);
                    match self.take()? {
                        Token::Comma => {}
                        Token::CloseSet => return Ok(set),
                        other => return Err(SelectorError(format!("expected }}, not {other}"))),
                    }
                }
                other => return Err(SelectorError(format!("expected }}, not {other}"))),
            }
        }
    }
}

fn quoted(text: &str) -> String {
    if text.contains('"') { format!("'{text}'") } else { format!("\"{text}\"") }
}

fn joined(f: &mut fmt::Formatter<'_>, parts: &[Selector], between: &str) -> fmt::Result {
    f.write_str("(")?;
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            write!(f, " {between} ")?;
        }
        fmt::Display::fmt(part, f)?;
    }
    f.write_str(")")
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |set: &BTreeSet<String>| set.iter().map(|v| quoted(v)).collect::<Vec<_>>().join(", ");
        match self {
            Selector::All => f.write_str("all()"),
            Selector::Global => f.write_str("global()"),
            Selector::Has(key) => write!(f, "has({key})"),
            Selector::Compare(key, op, value) => {
                let op = match op {
                    Op::Eq => "==",
                    Op::Ne => "!=",
                    Op::Contains => "contains",
                    Op::StartsWith => "starts with",
                    Op::EndsWith => "ends with",
                };
                write!(f, "{key} {op} {}", quoted(value))
            }
            Selector::In(key, values) => write!(f, "{key} in {{{}}}", set(values)),
            Selector::NotIn(key, values) => write!(f, "{key} not in {{{}}}", set(values)),
            Selector::Not(inner) => write!(f, "!{inner}"),
            Selector::And(parts) => joined(f, parts, "&&"),
            Selector::Or(parts) => joined(f, parts, "||"),
        }
    }
}
