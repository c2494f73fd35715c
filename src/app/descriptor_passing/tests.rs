use std::io::{Read, Write};
use std::os::fd::IntoRawFd;

use super::*;

#[tokio::test]
async fn a_line_arrives_with_working_descriptors() {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (ours, theirs) = (DescriptorChannel(ours), DescriptorChannel(theirs));
    let (mut near, far) = BlockingStream::pair().expect("a pair");
    ours.send("two of them", &[far.as_fd(), far.as_fd()]).await.expect("sent");
    ours.send("none", &[]).await.expect("sent");
    let line = theirs.receive().await.expect("received").expect("a line");
    assert_eq!((line.text.as_str(), line.descriptors.len()), ("two of them", 2));
    drop(far);
    let mut passed = BlockingStream::from(line.descriptors.into_iter().next().expect("a descriptor"));
    near.write_all(b"x").expect("written");
    passed.read_exact(&mut [0]).expect("the passed end works");
    let line = theirs.receive().await.expect("received").expect("a line");
    assert_eq!((line.text.as_str(), line.descriptors.len()), ("none", 0));
    drop(ours);
    assert!(theirs.receive().await.expect("an end").is_none());
}

#[test]
fn a_descriptor_known_by_its_number_gets_an_owner() {
    let (mut near, far) = BlockingStream::pair().expect("a pair");
    let owned = own(&[far.into_raw_fd()]).expect("owned").into_iter().next().expect("a descriptor");
    near.write_all(b"x").expect("written");
    BlockingStream::from(owned).read_exact(&mut [0]).expect("the owned end works");
    assert_eq!(near.read(&mut [0]).expect("an end"), 0, "no other copy is open");
}
