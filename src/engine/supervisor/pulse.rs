//! The lines that workers write and every scan reads, side by side in memory.
//!
//! A scan of ten thousand workers is one walk along these lines: spread over the heap with the rest of each worker, the
//! walk cost three times as much, all of it waiting for pages (measured). A line is taken by whoever makes a worker and
//! given back when nobody holds it any more, from any thread and without a lock: a thread that we watch must never be
//! able to hold up the supervisor.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::sys::clock;

pub(super) const BUSY: u8 = 0;
pub(super) const IDLE: u8 = 1;
pub(super) const PAUSED: u8 = 2;
pub(super) const PHASE: u8 = 3;
pub(super) const PHASE_EXTERNAL: u8 = 4;

/// Lines of one chunk.
const CHUNK: usize = 256;
const WORDS: usize = CHUNK / 64;
/// The number of a line that lies by itself.
const ALONE: u32 = u32::MAX;

/// Written by one worker on every beat, and by nobody else: a line of the cache of its own, so that neighbours do not
/// pay for each other's beats.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Pulse {
    pub(super) beat_at: AtomicU64,
    pub(super) beats: AtomicU64,
    /// 0 until progress is declared.
    pub(super) progress_at: AtomicU64,
    pub(super) progress: AtomicU64,
    pub(super) phase_began: AtomicU64,
    pub(super) phase_limit: AtomicU64,
    pub(super) doing: AtomicU8,
}

impl Pulse {
    const fn new() -> Pulse {
        Pulse {
            beat_at: AtomicU64::new(0),
            beats: AtomicU64::new(0),
            progress_at: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            phase_began: AtomicU64::new(0),
            phase_limit: AtomicU64::new(0),
            doing: AtomicU8::new(BUSY),
        }
    }

    /// As for a worker that begins now.
    fn begin(&self) {
        for word in [&self.beats, &self.progress_at, &self.progress, &self.phase_began, &self.phase_limit] {
            word.store(0, Ordering::Relaxed);
        }
        self.doing.store(BUSY, Ordering::Relaxed);
        self.beat_at.store(clock::coarse().0, Ordering::Release);
    }
}

#[derive(Debug)]
struct Chunk<L: ?Sized> {
    /// A bit for each line that nobody holds.
    free: [AtomicU64; WORDS],
    lines: L,
}

/// The right to one line, for as long as it is held.
#[derive(Debug)]
pub(super) struct Line {
    chunk: Arc<Chunk<[Pulse]>>,
    at: u8,
    number: u32,
}

impl Line {
    /// A line by itself, for a thread that asks for one outside of the supervisor.
    pub(super) fn alone() -> Line {
        let chunk = Arc::new(Chunk { free: [const { AtomicU64::new(0) }; WORDS], lines: [Pulse::new()] });
        chunk.lines[0].begin();
        Line { chunk, at: 0, number: ALONE }
    }

    /// Where it is, for [`Lines::get`].
    pub(super) fn number(&self) -> u32 {
        self.number
    }
}

impl Deref for Line {
    type Target = Pulse;

    #[inline]
    fn deref(&self) -> &Pulse {
        &self.chunk.lines[usize::from(self.at)]
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let word = usize::from(self.at / 64);
        self.chunk.free[word].fetch_or(1 << (self.at % 64), Ordering::Release);
    }
}

/// All lines of one supervisor. Chunks stay: they are as many as the most workers that ever ran at once.
#[derive(Debug, Default)]
pub(super) struct Lines {
    chunks: Vec<Arc<Chunk<[Pulse]>>>,
}

impl Lines {
    /// The first line that nobody holds, as for a worker that begins now.
    pub(super) fn take(&mut self) -> Line {
        for (n, chunk) in self.chunks.iter().enumerate() {
            for (word, free) in chunk.free.iter().enumerate() {
                let bits = free.load(Ordering::Acquire);
                if bits == 0 {
                    continue;
                }
                let bit = bits.trailing_zeros();
                // Only the supervisor takes, so the bit is still there.
                free.fetch_and(!(1 << bit), Ordering::AcqRel);
                let at = u8::try_from(word * 64).unwrap_or(0) + u8::try_from(bit).unwrap_or(0);
                let number = u32::try_from(n * CHUNK).unwrap_or(ALONE).saturating_add(u32::from(at));
                let line = Line { chunk: Arc::clone(chunk), at, number };
                line.begin();
                return line;
            }
        }
        let free = [const { AtomicU64::new(u64::MAX) }; WORDS];
        self.chunks.push(Arc::new(Chunk { free, lines: [const { Pulse::new() }; CHUNK] }));
        self.take()
    }

    /// The line of that number; none for one that lies by itself.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&Pulse> {
        let number = usize::try_from(number).ok()?;
        self.chunks.get(number / CHUNK)?.lines.get(number % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_line_of_the_cache_to_itself() {
        assert_eq!((size_of::<Pulse>(), align_of::<Pulse>()), (64, 64));
    }

    #[test]
    fn lines_are_dense_given_back_and_begun_anew() {
        let mut lines = Lines::default();
        let mut held: Vec<Line> = (0..CHUNK + 3).map(|_| lines.take()).collect();
        let numbers: Vec<u32> = held.iter().map(Line::number).collect();
        assert_eq!(numbers, (0..u32::try_from(CHUNK + 3).unwrap()).collect::<Vec<_>>());
        assert_eq!(lines.chunks.len(), 2);
        held[70].beats.store(7, Ordering::Relaxed);
        held[70].doing.store(PAUSED, Ordering::Relaxed);
        assert_eq!(lines.get(70).unwrap().beats.load(Ordering::Relaxed), 7);
        // Given back by another thread.
        let gone = held.remove(70);
        std::thread::spawn(move || drop(gone)).join().unwrap();
        let again = lines.take();
        assert_eq!((again.number(), again.beats.load(Ordering::Relaxed)), (70, 0));
        assert_eq!(again.doing.load(Ordering::Relaxed), BUSY);
        assert_eq!(lines.take().number(), u32::try_from(CHUNK + 3).unwrap());
        let alone = Line::alone();
        assert!(lines.get(alone.number()).is_none());
    }
}
