use super::*;

/// Decodes the QR code in an image.
fn decode(picture: &[u8]) -> String {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(picture));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut points = vec![0; reader.output_buffer_size().unwrap()];
    let shape = reader.next_frame(&mut points).unwrap();
    let side = shape.width as usize;
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(side, side, |x, y| points[y * shape.line_size + x]);
    image.detect_grids()[0].decode().unwrap().1
}

#[test]
fn a_scanner_decodes_the_text() {
    let long = "x".repeat(1000);
    for text in ["a", "https://desk.example/h5/?a=1&b=2#c", "登录", &long] {
        assert_eq!(decode(&png(text).unwrap()), *text);
    }
}

#[test]
fn a_scanner_decodes_the_half_blocks_of_a_terminal() {
    let text = "otpauth://totp/Desk:a2001?secret=JBSWY3DPEHPK3PXP&issuer=Desk";
    let drawn = half_blocks(text).unwrap();
    let lines: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
    let (side, scale) = (lines[0].len(), 4);
    let is_dark = |x: usize, y: usize| match lines[y / 2][x] {
        '█' => true,
        '▀' => y.is_multiple_of(2),
        '▄' => !y.is_multiple_of(2),
        _ => false,
    };
    let mut image = rqrr::PreparedImage::prepare_from_greyscale(side * scale, side * scale, |x, y| {
        if is_dark(x / scale, y / scale) { 0 } else { 255 }
    });
    assert_eq!(image.detect_grids()[0].decode().unwrap().1, text);
}

#[test]
fn a_text_too_long_for_any_version_is_an_error() {
    assert!(matches!(png(&"x".repeat(5000)), Err(QrFault::TooLong(_))));
}

#[test]
fn the_mask_with_the_lowest_penalty_is_chosen() {
    let code = Modules::encode("https://desk.example/", IMAGE_LEVEL).unwrap();
    let library = qrcode::QrCode::with_error_correction_level("https://desk.example/", IMAGE_LEVEL).unwrap();
    assert_eq!(code.width, library.width(), "the same version");
    assert!(penalty::of(&code.colors, code.width) <= penalty::of(&library.to_colors(), code.width));
}

#[test]
fn the_penalty_follows_the_rules_of_the_standard() {
    let square = |rows: &[&str]| -> Vec<Color> {
        rows.iter().flat_map(|row| row.chars()).map(|c| if c == '#' { Color::Dark } else { Color::Light }).collect()
    };
    let chessboard = ["#.#.#.", ".#.#.#", "#.#.#.", ".#.#.#", "#.#.#.", ".#.#.#"];
    let table: &[(&str, [&str; 6], usize)] = &[
        ("no penalty", chessboard, 0),
        ("five in a row, and 55 % dark", ["#####.", ".#.#.#", "#.#.#.", ".#.#.#", "#.#.#.", ".#.#.#"], 3 + 10),
        ("six in a row, and 58 % dark", ["######", ".#.#.#", "#.#.#.", ".#.#.#", "#.#.#.", ".#.#.#"], 4 + 10),
        ("one block of four", ["##.#.#", "##.#.#", "..#.#.", "#.#.#.", ".#.#.#", "#.#.#."], 3),
        ("all dark", ["######"; 6], 12 * 4 + 25 * 3 + 100),
    ];
    for (case, rows, expected) in table {
        let found = penalty::of(&square(rows), 6);
        assert_eq!(found, *expected, "{case}");
    }
}

/// The same rules, module by module.
fn reference_penalty(colors: &[Color], width: usize) -> usize {
    let dark = |x: usize, y: usize| colors[y * width + x] == Color::Dark;
    let along = |modules: &mut dyn Iterator<Item = bool>| {
        let (mut sum, mut run, mut last, mut window) = (0, 0, None, 0_u16);
        for (at, dark) in modules.enumerate() {
            run = if last == Some(dark) { run + 1 } else { 1 };
            last = Some(dark);
            sum += if run == 5 { 3 } else { usize::from(run > 5) };
            window = (window << 1 | u16::from(dark)) & 0x7ff;
            sum += 40 * usize::from(at >= 10 && [0b101_1101_0000, 0b000_0101_1101].contains(&window));
        }
        sum
    };
    let mut sum = 0;
    for line in 0..width {
        sum += along(&mut (0..width).map(|at| dark(at, line))) + along(&mut (0..width).map(|at| dark(line, at)));
    }
    for (x, y) in (1..width).flat_map(|y| (1..width).map(move |x| (x, y))) {
        let block = [dark(x - 1, y), dark(x, y - 1), dark(x - 1, y - 1)];
        sum += 3 * usize::from(block == [dark(x, y); 3]);
    }
    let darkness = colors.iter().filter(|color| **color == Color::Dark).count() * 100 / colors.len();
    sum + 10 * (darkness.abs_diff(50) / 5)
}

#[test]
fn the_bit_set_penalty_equals_the_reference() {
    let mut state = 7_u64;
    for width in [21, 63, 64, 65, 129, 177] {
        for rare in [2, 3, 8] {
            let mut color = || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                if (state >> 33).is_multiple_of(rare) { Color::Dark } else { Color::Light }
            };
            let colors: Vec<Color> = (0..width * width).map(|_| color()).collect();
            assert_eq!(penalty::of(&colors, width), reference_penalty(&colors, width), "{width}");
        }
    }
    let Modules { colors, width } =
        Modules::encode("https://desk.example/api/auth/oauth2/callback?a=b", IMAGE_LEVEL).unwrap();
    assert_eq!(penalty::of(&colors, width), reference_penalty(&colors, width));
}
