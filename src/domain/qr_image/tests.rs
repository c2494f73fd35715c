use super::*;

/// What a scanner reads from a picture.
fn read(picture: &[u8]) -> String {
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
fn a_scanner_reads_what_was_written() {
    let long = "x".repeat(1000);
    for text in ["a", "https://desk.example/h5/?a=1&b=2#c", "登录", &long] {
        assert_eq!(read(&png(text).unwrap()), *text);
    }
}

#[test]
fn a_text_that_fits_into_no_code_is_refused() {
    assert!(matches!(png(&"x".repeat(5000)), Err(QrFault::TooLong(_))));
}
