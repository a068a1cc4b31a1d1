//! Text → tokens. What a word means depends on the token before it.

use std::fmt;

use super::SelectorError;

/// Longest label name, in bytes.
const LONGEST: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Label(String),
    Text(String),
    Has(String),
    All,
    Global,
    Open,
    Close,
    OpenSet,
    CloseSet,
    Comma,
    Eq,
    Ne,
    Not,
    And,
    Or,
    In,
    NotIn,
    Contains,
    StartsWith,
    EndsWith,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

fn trim(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

fn error<T>(what: &str, at: &str) -> Result<T, SelectorError> {
    Err(SelectorError(format!("{what} at {:?}", at.chars().take(20).collect::<String>())))
}

pub(super) fn tokens(text: &str) -> Result<Vec<Token>, SelectorError> {
    const FIXED: [(&str, Token); 10] = [
        ("(", Token::Open),
        (")", Token::Close),
        ("{", Token::OpenSet),
        ("}", Token::CloseSet),
        (",", Token::Comma),
        ("==", Token::Eq),
        ("!=", Token::Ne),
        ("!", Token::Not),
        ("&&", Token::And),
        ("||", Token::Or),
    ];
    let mut tokens = Vec::new();
    let mut rest = trim(text);
    while !rest.is_empty() {
        let fixed = FIXED.iter().find(|(t, _)| rest.starts_with(t));
        let (token, left) = if let Some((text, token)) = fixed {
            (token.clone(), &rest[text.len()..])
        } else if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let Some(end) = rest[1..].find(quote) else { return error("unterminated text", rest) };
            (Token::Text(rest[1..=end].into()), &rest[end + 2..])
        } else if rest.starts_with(['=', '&', '|']) {
            return error("half an operator", rest);
        } else if matches!(tokens.last(), Some(Token::Label(_))) {
            operator(rest)?
        } else {
            word(rest)?
        };
        tokens.push(token);
        rest = trim(left);
    }
    Ok(tokens)
}

/// The operator that must follow a label.
fn operator(text: &str) -> Result<(Token, &str), SelectorError> {
    let two = |first: &str, second: &str| text.strip_prefix(first).and_then(|t| trim(t).strip_prefix(second)).map(trim);
    let found = [
        (text.strip_prefix("contains"), Token::Contains),
        (two("starts", "with"), Token::StartsWith),
        (two("ends", "with"), Token::EndsWith),
        (two("not", "in"), Token::NotIn),
        (text.strip_prefix("in"), Token::In),
    ];
    for (left, token) in found {
        if let Some(left) = left
            && !left.starts_with(is_name)
        {
            return Ok((token, left));
        }
    }
    error("expected an operator after a label", text)
}

fn name(text: &str) -> Result<(String, &str), SelectorError> {
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    match end {
        0 => error("expected a name", text),
        1..=LONGEST => Ok((text[..end].into(), &text[end..])),
        _ => error("a name of more than 512 bytes", text),
    }
}

fn word(text: &str) -> Result<(Token, &str), SelectorError> {
    if let Some(inside) = text.strip_prefix("has(") {
        let (key, left) = name(trim(inside))?;
        return match trim(left).strip_prefix(')') {
            Some(left) => Ok((Token::Has(key), left)),
            None => error("no ) after has(", text),
        };
    }
    for (start, token) in [("all(", Token::All), ("global(", Token::Global)] {
        if let Some(inside) = text.strip_prefix(start) {
            return match trim(inside).strip_prefix(')') {
                Some(left) => Ok((token, left)),
                None => error("no ) where one is due", text),
            };
        }
    }
    let (key, left) = name(text)?;
    Ok((Token::Label(key), left))
}
