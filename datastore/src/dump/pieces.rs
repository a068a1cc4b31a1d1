//! A stream of text, cut into objects and what stands between them.

use std::fmt;
use std::io::{BufRead, Read};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::DumpError;

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An entry of a YAML list, with its dash at this column.
    Entry(usize),
    /// A YAML document of its own.
    Document,
    /// JSON.
    Json,
}

/// A piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Not an object: the frame of a list, comments, separators.
    Frame(&'a str),
    /// An object.
    Object { text: &'a str, form: Form, line: usize },
}

/// Cuts input into pieces, in order; joined they are the input again (JSON frames excepted).
pub(super) fn cut(name: &str, input: impl BufRead, mut each: impl FnMut(Piece<'_>) -> Result<(), DumpError>) -> Result<(), DumpError> {
    let mut input = input;
    let first = loop {
        let buffer = input.fill_buf().map_err(|e| DumpError::new(name, e.to_string()))?;
        let Some(&byte) = buffer.first() else { return Err(DumpError::new(name, "is empty")) };
        if !byte.is_ascii_whitespace() {
            break byte;
        }
        input.consume(1);
    };
    if first == b'{' || first == b'[' {
        return cut_json(name, input, &mut each);
    }
    let mut cutter = Cutter { name, each, held: String::new(), line: 0, start: 1, mode: Mode::Head, kinded: false, listed: false };
    let mut line = String::new();
    while input.read_line(&mut line).map_err(|e| DumpError::new(format!("{name}:{}", cutter.line + 1), e.to_string()))? > 0 {
        cutter.line += 1;
        cutter.take(&line)?;
        line.clear();
    }
    cutter.end_document()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Before `items`, or inside a document that is an object itself.
    Head,
    /// After `items:`, before its first entry.
    Opening,
    /// Inside the entries.
    Entries(usize),
    /// After the entries.
    Tail,
}

struct Cutter<'a, F> {
    name: &'a str,
    each: F,
    held: String,
    line: usize,
    start: usize,
    mode: Mode,
    /// The document has a `kind` at its top.
    kinded: bool,
    /// The document is a list.
    listed: bool,
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_entry(line: &str) -> bool {
    let rest = line.trim_start_matches(' ');
    rest.starts_with("- ") || rest.trim_end() == "-"
}

impl<F: FnMut(Piece<'_>) -> Result<(), DumpError>> Cutter<'_, F> {
    fn take(&mut self, line: &str) -> Result<(), DumpError> {
        if line.starts_with("---") || line.trim_end() == "..." {
            self.end_document()?;
            return (self.each)(Piece::Frame(line));
        }
        let idle = line.trim().is_empty() || line.trim_start().starts_with('#');
        match self.mode {
            Mode::Opening if !idle => {
                if is_entry(line) {
                    self.frame()?;
                    self.mode = Mode::Entries(indent(line));
                } else {
                    self.mode = Mode::Tail;
                }
            }
            Mode::Entries(column) if !idle && indent(line) <= column => {
                self.object(Form::Entry(column))?;
                if !(indent(line) == column && is_entry(line)) {
                    self.mode = Mode::Tail;
                }
            }
            _ => {}
        }
        if matches!(self.mode, Mode::Head | Mode::Tail) {
            self.kinded |= line.starts_with("kind:");
            if self.mode == Mode::Head && self.opens_list(line) {
                self.listed = true;
                self.mode = Mode::Opening;
            }
        }
        if self.held.is_empty() {
            self.start = self.line;
        }
        self.held.push_str(line);
        Ok(())
    }

    /// Whether a line is `items:` with nothing or an empty list behind it. A list in flow style is left to the
    /// parser, as one document.
    fn opens_list(&self, line: &str) -> bool {
        let rest = line.strip_prefix("items:").map(|r| r.split(" #").next().unwrap_or(r).trim());
        matches!(rest, Some("" | "[]"))
    }

    fn frame(&mut self) -> Result<(), DumpError> {
        let done = if self.held.is_empty() { Ok(()) } else { (self.each)(Piece::Frame(&self.held)) };
        self.held.clear();
        done
    }

    fn object(&mut self, form: Form) -> Result<(), DumpError> {
        let done = (self.each)(Piece::Object { text: &self.held, form, line: self.start });
        self.held.clear();
        done
    }

    fn end_document(&mut self) -> Result<(), DumpError> {
        match self.mode {
            Mode::Entries(column) => self.object(Form::Entry(column))?,
            Mode::Head if self.held.lines().any(|l| !l.trim().is_empty() && !l.starts_with('#') && !l.starts_with('%')) => {
                self.object(Form::Document)?
            }
            _ => self.frame()?,
        }
        if self.listed && !self.kinded {
            return Err(DumpError::new(
                format!("{}:{}", self.name, self.line),
                "the list has no kind: the file is truncated (kubectl writes it last)",
            ));
        }
        (self.mode, self.kinded, self.listed) = (Mode::Head, false, false);
        Ok(())
    }
}

fn cut_json(name: &str, input: impl Read, each: &mut impl FnMut(Piece<'_>) -> Result<(), DumpError>) -> Result<(), DumpError> {
    let mut failed = None;
    let mut give = |text: &str| each(Piece::Object { text, form: Form::Json, line: 1 }).map_err(|e| failed = Some(e)).is_ok();
    let mut reader = serde_json::Deserializer::from_reader(input);
    let done = Top(&mut give).deserialize(&mut reader).and_then(|()| reader.end());
    match (failed, done) {
        (Some(e), _) => Err(e),
        (None, done) => done.map_err(|e| DumpError::new(name, e.to_string())),
    }
}

/// A top-level object or array: calls back with the text of each object in it.
struct Top<'a, F>(&'a mut F);

/// The items of a list.
struct Items<'a, F>(&'a mut F);

impl<'de, F: FnMut(&str) -> bool> DeserializeSeed<'de> for Top<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for Top<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Items(self.0).visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut rest, mut listed) = (serde_json::Map::new(), false);
        while let Some(key) = map.next_key::<String>()? {
            if key == "items" {
                map.next_value_seed(Items(self.0))?;
                listed = true;
            } else {
                rest.insert(key, map.next_value()?);
            }
        }
        if !listed {
            (self.0)(&serde_json::Value::Object(rest).to_string());
        }
        Ok(())
    }
}

impl<'de, F: FnMut(&str) -> bool> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(&str) -> bool> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(item) = seq.next_element::<Box<RawValue>>()? {
            if !(self.0)(item.get()) {
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Result<Vec<(String, Option<Form>)>, String> {
        let mut out = Vec::new();
        let done = cut("f", text.as_bytes(), |p| {
            out.push(match p {
                Piece::Frame(t) => (t.to_owned(), None),
                Piece::Object { text, form, .. } => (text.to_owned(), Some(form)),
            });
            Ok(())
        });
        done.map(|()| out).map_err(|e| e.to_string())
    }

    fn objects(text: &str) -> Vec<(String, Form)> {
        pieces(text).expect("readable").into_iter().filter_map(|(t, f)| Some((t, f?))).collect()
    }

    #[test]
    fn entries_at_either_indent_and_pieces_join_to_the_input() {
        for n in ["", "  "] {
            let text = format!(
                "apiVersion: v1\nitems:\n# note\n{n}- a: 1\n{n}  b: |\n{n}    - x\n\n{n}    y\n{n}- a: 2\nkind: List\nmetadata: {{}}\n"
            );
            let got = objects(&text);
            assert_eq!(got.len(), 2, "{text}");
            assert_eq!(got[0], (format!("{n}- a: 1\n{n}  b: |\n{n}    - x\n\n{n}    y\n"), Form::Entry(n.len())));
            assert_eq!(pieces(&text).expect("readable").into_iter().map(|p| p.0).collect::<String>(), text);
        }
    }

    #[test]
    fn documents_and_lists_in_one_stream() {
        let text = "# c\n---\nkind: A\n---\nkind: List\nitems:\n- a: 1\n---\n\n---\nitems: []\nkind: List\n";
        let got: Vec<_> = objects(text).into_iter().map(|(t, _)| t).collect();
        assert_eq!(got, ["kind: A\n", "- a: 1\n"]);
    }

    #[test]
    fn d_37_a_list_without_kind_is_truncated() {
        let whole = "items:\n- a: 1\n- a: 2\nkind: List\n";
        assert!(pieces(whole).is_ok());
        let cut = "items:\n- a: 1\n- a: 2\n";
        assert!(pieces(cut).is_err_and(|e| e.contains("truncated")));
        assert!(pieces("").is_err_and(|e| e.contains("empty")));
    }

    #[test]
    fn json_lists_arrays_and_single_objects() {
        for text in ["{\"items\":[{\"a\":1},{\"a\":2}],\"kind\":\"List\"}", "[{\"a\":1},{\"a\":2}]"] {
            assert_eq!(objects(text).len(), 2);
        }
        assert_eq!(objects("{\"kind\":\"A\"}"), [("{\"kind\":\"A\"}".to_owned(), Form::Json)]);
        for broken in ["{\"items\":[{\"a\":1},", "{\"items\":[{\"a\":1}]} x", "{\"items\":7}"] {
            assert!(pieces(broken).is_err(), "{broken}");
        }
    }
}
