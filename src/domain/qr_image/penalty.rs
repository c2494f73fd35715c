//! How hard a QR code is to read, by the four rules of the standard (ISO/IEC 18004, 7.8.3).
//!
//! A row or column is a word of bits, and the rules look at all its modules at once: module by module the
//! processor would guess wrong at every other one.

use qrcode::Color;

/// Patterns that a scanner could take for the marks in the corners, with the light side on either end.
const LIKE_A_MARK: [u16; 2] = [0b101_1101_0000, 0b000_0101_1101];

/// Letters of such a pattern.
const MARK_LENGTH: usize = 11;

/// A row or column, dark modules set; the largest code has 177 in one.
#[derive(Clone, Copy, Default)]
struct Line([u64; 3]);

impl Line {
    fn dark(&mut self, at: usize, color: Color) {
        self.0[at / 64] |= u64::from(color == Color::Dark) << (at % 64);
    }

    /// The first `count` set.
    fn first(count: usize) -> Line {
        let word = |start: usize| match count.saturating_sub(start) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        Line([word(0), word(64), word(128)])
    }

    /// Every module in the place of the one `count` before it.
    fn ahead(self, count: usize) -> Line {
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

    /// Where two are alike.
    fn like(self, other: Line) -> Line {
        self.combined(other, |one, other| !(one ^ other))
    }

    fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Modules of which the next one has the same colour.
    fn pairs(self, width: usize) -> Line {
        self.like(self.ahead(1)).and(Line::first(width - 1))
    }
}

/// The penalty of a square code; lower is better.
pub fn of(colors: &[Color], width: usize) -> usize {
    let (mut rows, mut columns) = (vec![Line::default(); width], vec![Line::default(); width]);
    for (y, row) in colors.chunks_exact(width).enumerate() {
        for (x, color) in row.iter().enumerate() {
            rows[y].dark(x, *color);
            columns[x].dark(y, *color);
        }
    }
    let lines: usize = rows.iter().chain(&columns).map(|line| along(*line, width)).sum();
    let blocks =
        rows.windows(2).map(|two| two[0].pairs(width).and(two[1].pairs(width)).and(two[0].like(two[1])).count());
    let dark: usize = rows.iter().map(|row| row.count()).sum();
    let darkness = dark * 100 / colors.len().max(1);
    lines + 3 * blocks.sum::<usize>() + 10 * (darkness.abs_diff(50) / 5)
}

/// Of one row or column: runs of one colour from five on, and patterns like the marks.
fn along(line: Line, width: usize) -> usize {
    let pairs = line.pairs(width);
    // Set at each module with which five of a colour begin: n of them in a row are a run of n + 4.
    let fives = pairs.and(pairs.ahead(1)).and(pairs.ahead(2)).and(pairs.ahead(3));
    let ends = fives.and_not(fives.ahead(1));
    let marks = LIKE_A_MARK.iter().map(|pattern| {
        let places = (0..MARK_LENGTH).fold(Line::first((width + 1).saturating_sub(MARK_LENGTH)), |places, at| {
            match pattern >> at & 1 {
                1 => places.and(line.ahead(at)),
                _ => places.and_not(line.ahead(at)),
            }
        });
        places.count()
    });
    fives.count() + 2 * ends.count() + 40 * marks.sum::<usize>()
}
