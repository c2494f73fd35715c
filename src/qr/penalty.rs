//! The mask penalty of a QR code by the four rules of ISO/IEC 18004, 7.8.3.
//!
//! A row or column is a bit set, and each rule tests all its modules at once: a branch per module would be
//! mispredicted every other time.

use qrcode::Color;

/// Patterns that look like a finder pattern, with the light side on either end.
const FINDER_LIKE: [u16; 2] = [0b101_1101_0000, 0b000_0101_1101];

/// Modules in such a pattern.
const FINDER_LENGTH: usize = 11;

/// A row or column with a bit set for each dark module; the largest code has 177 per line.
#[derive(Clone, Copy, Default)]
struct Line([u64; 3]);

impl Line {
    fn set(&mut self, at: usize, color: Color) {
        self.0[at / 64] |= u64::from(color == Color::Dark) << (at % 64);
    }

    /// A line with the first `count` bits set.
    fn first(count: usize) -> Line {
        let word = |start: usize| match count.saturating_sub(start) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        Line([word(0), word(64), word(128)])
    }

    /// Shifts every module `count` places towards the start.
    fn shifted(self, count: usize) -> Line {
        let [low, middle, high] = self.0;
        match count {
            0 => self,
            _ => Line([low >> count | middle << (64 - count), middle >> count | high << (64 - count), high >> count]),
        }
    }

    fn combined(self, other: Line, combine: impl Fn(u64, u64) -> u64) -> Line {
        Line([combine(self.0[0], other.0[0]), combine(self.0[1], other.0[1]), combine(self.0[2], other.0[2])])
    }

    fn and(self, other: Line) -> Line {
        self.combined(other, |one, other| one & other)
    }

    fn and_not(self, other: Line) -> Line {
        self.combined(other, |one, other| one & !other)
    }

    /// The places where two lines have the same colour.
    fn equal(self, other: Line) -> Line {
        self.combined(other, |one, other| !(one ^ other))
    }

    fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The modules whose successor has the same colour.
    fn pairs(self, width: usize) -> Line {
        self.equal(self.shifted(1)).and(Line::first(width - 1))
    }
}

/// Computes the penalty of a square code; lower is better.
pub fn of(colors: &[Color], width: usize) -> usize {
    let (mut rows, mut columns) = (vec![Line::default(); width], vec![Line::default(); width]);
    for (y, row) in colors.chunks_exact(width).enumerate() {
        for (x, color) in row.iter().enumerate() {
            rows[y].set(x, *color);
            columns[x].set(y, *color);
        }
    }
    let lines: usize = rows.iter().chain(&columns).map(|line| line_penalty(*line, width)).sum();
    let blocks =
        rows.windows(2).map(|two| two[0].pairs(width).and(two[1].pairs(width)).and(two[0].equal(two[1])).count());
    let dark: usize = rows.iter().map(|row| row.count()).sum();
    let darkness = dark * 100 / colors.len().max(1);
    lines + 3 * blocks.sum::<usize>() + 10 * (darkness.abs_diff(50) / 5)
}

/// The penalty of one row or column: runs of five or more modules, and finder-like patterns.
fn line_penalty(line: Line, width: usize) -> usize {
    let pairs = line.pairs(width);
    // A bit for each module that starts five of one colour: n bits in a row are a run of n + 4.
    let fives = pairs.and(pairs.shifted(1)).and(pairs.shifted(2)).and(pairs.shifted(3));
    let ends = fives.and_not(fives.shifted(1));
    let finders = FINDER_LIKE.iter().map(|pattern| {
        let places = (0..FINDER_LENGTH).fold(Line::first((width + 1).saturating_sub(FINDER_LENGTH)), |places, at| {
            match pattern >> at & 1 {
                1 => places.and(line.shifted(at)),
                _ => places.and_not(line.shifted(at)),
            }
        });
        places.count()
    });
    fives.count() + 2 * ends.count() + 40 * finders.sum::<usize>()
}
