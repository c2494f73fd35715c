//! Passes file descriptors between processes over a Unix socket (SCM_RIGHTS), together with a line of text. What the lines
//! mean is left to `handover`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as BlockingStream;

use nix::sys::socket::{ControlMessage, MsgFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// The most descriptors that the kernel passes at once.
const MOST_DESCRIPTORS: usize = 253;

/// Longer than any line that is sent.
const LONGEST_LINE: usize = 16 * 1024;

/// A connection between two processes.
pub(super) struct DescriptorChannel(pub(super) UnixStream);

/// A line and what came with it.
pub(super) struct ReceivedLine {
    pub(super) text: String,
    pub(super) descriptors: Vec<OwnedFd>,
}

impl DescriptorChannel {
    /// Sends a line with descriptors. The other process gets duplicates.
    pub(super) async fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let line = format!("{text}\n");
        self.0.async_io(Interest::WRITABLE, || send(&self.0, line.as_bytes(), descriptors)).await
    }

    /// Receives a line; `None` if the other process has closed the connection or ended.
    pub(super) async fn receive(&self) -> io::Result<Option<ReceivedLine>> {
        let (mut text, mut descriptors) = (Vec::new(), Vec::new());
        while !text.ends_with(b"\n") {
            let mut buffer = [0; 4096];
            let receive = || receive(&self.0, &mut buffer);
            let (length, received) = match self.0.async_io(Interest::READABLE, receive).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => (0, Vec::new()),
                received => received?,
            };
            if length == 0 {
                return Ok(None);
            }
            text.extend_from_slice(&buffer[..length]);
            descriptors.extend(received);
            if text.len() > LONGEST_LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        Ok(Some(ReceivedLine { text, descriptors }))
    }
}

/// Takes ownership of descriptors that this process inherited by number and that nothing else in it uses.
pub(super) fn own(descriptors: &[RawFd]) -> io::Result<Vec<OwnedFd>> {
    // Sent to ourselves: the copies that arrive have an owner.
    let (ours, theirs) = BlockingStream::pair()?;
    let rights = [ControlMessage::ScmRights(descriptors)];
    nix::sys::socket::sendmsg::<()>(ours.as_raw_fd(), &[IoSlice::new(b"\n")], &rights, MsgFlags::empty(), None)?;
    let (_, owned) = receive(&theirs, &mut [0])?;
    for inherited in descriptors {
        nix::unistd::close(*inherited)?;
    }
    Ok(owned)
}

fn send(stream: &impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    let mut space = vec![MaybeUninit::uninit(); rights.size()];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(rights) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn receive(stream: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(buffer)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("not all file descriptors could be received"));
    }
    Ok((received.bytes, descriptors))
}

#[cfg(test)]
mod tests;
