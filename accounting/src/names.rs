//! Interned names: one copy of each text, four bytes everywhere else.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// Where a text lies in the arena, and how many users it has.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    len: u32,
    users: u32,
}

/// A table of texts by number. Numbers of texts that nobody uses any more are handed out again, and the arena
/// is packed when more than half of it is dead, so that memory follows what is there and not what has been.
#[derive(Debug, Default)]
pub struct Names {
    arena: Vec<u8>,
    spans: Vec<Span>,
    free: Vec<u32>,
    dead: usize,
    index: HashTable<u32>,
}

fn hash(text: &[u8]) -> u64 {
    FxBuildHasher.hash_one(text)
}

impl Names {
    /// The number of `text`, if it is known.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.index.find(hash(text.as_bytes()), |&id| self.bytes(id) == text.as_bytes()).copied()
    }

    /// The number of `text`, counting one more user of it.
    ///
    /// # Panics
    /// When all texts together pass 4 GiB.
    pub fn acquire(&mut self, text: &str) -> u32 {
        if let Some(id) = self.find(text) {
            self.spans[id as usize].users += 1;
            return id;
        }
        let start = u32::try_from(self.arena.len()).expect("names take less than 4 GiB");
        self.arena.extend_from_slice(text.as_bytes());
        let span = Span { start, len: text.len() as u32, users: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.spans[id as usize] = span;
                id
            }
            None => {
                self.spans.push(span);
                (self.spans.len() - 1) as u32
            }
        };
        let (arena, spans) = (&self.arena, &self.spans);
        self.index.insert_unique(hash(text.as_bytes()), id, |&id| hash(slice(arena, spans[id as usize])));
        id
    }

    /// Counts one more user of a number that is in use.
    pub fn share(&mut self, id: u32) {
        self.spans[id as usize].users += 1;
    }

    /// Gives one use back; the last one frees the number. Answers whether it did.
    pub fn release(&mut self, id: u32) -> bool {
        let span = &mut self.spans[id as usize];
        span.users -= 1;
        if span.users > 0 {
            return false;
        }
        let found = self.index.find_entry(hash(slice(&self.arena, self.spans[id as usize])), |&other| other == id);
        if let Ok(entry) = found {
            entry.remove();
        }
        self.dead += self.spans[id as usize].len as usize;
        self.spans[id as usize] = Span::default();
        self.free.push(id);
        if self.dead > 4096 && self.dead > self.arena.len() / 2 {
            self.pack();
        }
        true
    }

    /// The text of a number that is in use.
    pub fn text(&self, id: u32) -> &str {
        std::str::from_utf8(self.bytes(id)).expect("only texts go in")
    }

    /// One more than the highest number ever handed out.
    pub fn bound(&self) -> usize {
        self.spans.len()
    }

    fn bytes(&self, id: u32) -> &[u8] {
        slice(&self.arena, self.spans[id as usize])
    }

    fn pack(&mut self) {
        let mut packed = Vec::with_capacity(self.arena.len() - self.dead);
        for span in self.spans.iter_mut().filter(|s| s.users > 0) {
            let start = packed.len() as u32;
            packed.extend_from_slice(slice(&self.arena, *span));
            span.start = start;
        }
        self.arena = packed;
        self.dead = 0;
    }
}

fn slice(arena: &[u8], span: Span) -> &[u8] {
    &arena[span.start as usize..(span.start + span.len) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number_until_its_last_user_goes() {
        let mut names = Names::default();
        let (a, b) = (names.acquire("a"), names.acquire("b"));
        assert_eq!(names.acquire("a"), a);
        assert!(!names.release(a));
        assert_eq!(names.find("a"), Some(a));
        assert!(names.release(a));
        assert_eq!((names.find("a"), names.find("b")), (None, Some(b)));
        assert_eq!(names.acquire("c"), a, "a freed number is used again");
        assert_eq!((names.text(a), names.text(b)), ("c", "b"));
    }

    #[test]
    fn churn_does_not_grow_the_arena() {
        let mut names = Names::default();
        let keep = names.acquire("kept for good");
        for n in 0..100_000 {
            let id = names.acquire(&format!("a name that comes and goes {n}"));
            names.release(id);
        }
        assert!(names.arena.len() < 20_000 && names.bound() == 2);
        assert_eq!(names.text(keep), "kept for good");
    }
}
