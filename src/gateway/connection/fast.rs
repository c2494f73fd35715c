//! What the fast lane needs of a connection: the head of a request, and the end of the client. It reads and writes through the
//! connection as Pingora does, with the same limits.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use super::super::context::NO_ADDRESS;
use super::exchange::{announced, phase};
use super::{Connection, RequestBody};
use crate::pipeline::Decision;
use crate::pipeline::head::Transport;

impl Connection {
    /// Removes and returns the head that has been read.
    pub(in super::super) fn take_head(&mut self) -> Vec<u8> {
        // A decision about an earlier request must not apply to this one.
        self.state.take_decision();
        self.head.take_head()
    }

    /// Puts a head back, for Pingora to read.
    pub(in super::super) fn return_head(&mut self, head: Vec<u8>) {
        self.head.return_head(head);
    }

    /// Leaves the decision about a request to the callbacks, so that it is not made twice.
    pub(in super::super) fn leave_decision(&mut self, decision: Decision) {
        self.state.leave_decision(decision);
    }

    /// Marks that a request without a body is being answered.
    pub(in super::super) fn begin_fast(&mut self) {
        self.body = RequestBody::COMPLETE;
        self.state.announced_body.store(announced::SEEN, Ordering::Release);
        self.state.phase.store(phase::EXCHANGE, Ordering::Release);
    }

    /// Marks the response as complete.
    pub(in super::super) fn end_fast(&mut self) {
        self.state.phase.store(phase::DONE, Ordering::Release);
    }

    /// The address of the connection's other end.
    pub(in super::super) fn peer(&self) -> IpAddr {
        let digest = self.inner.as_ref().and_then(|inner| inner.get_socket_digest());
        let address = digest.and_then(|digest| Some(digest.peer_addr()?.as_inet()?.ip()));
        address.unwrap_or(NO_ADDRESS)
    }

    /// How its requests arrive.
    pub(in super::super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Ready once the client has closed its connection. What it sends meanwhile is kept for the next request.
    pub(in super::super) fn poll_disconnected(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_read_ahead(cx).map(|_| ())
    }
}
