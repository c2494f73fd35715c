//! The lane of plain questions: a GET of HTTP/1.1 goes to its upstream as bytes and the answer comes back piece
//! by piece, without the tasks and channels that the engine's proxy needs for bodies in both directions. What is
//! read and written is read and written by the engine's own sessions, and its failures take the engine's way.

use std::time::Instant;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderValue, Version};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::v1::client::HttpSession as UpstreamExchange;
use pingora_core::upstreams::peer::{HttpPeer, Peer};
use pingora_core::{Error as Failure, ErrorType, RetryType};
use pingora_http::ResponseHeader;
use pingora_proxy::Session as Exchange;
use tokio::io::AsyncWriteExt;

use super::{Gateway, Lines, RequestContext, view};
use crate::pipeline::forward;

impl Gateway {
    /// Brings a plain question to its upstream and the answer to the client.
    pub(super) async fn proxy_bodyless_get(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
    ) -> pingora_core::Result<()> {
        let question = self.encode_head(exchange, context)?;
        let (mut upstream, peer) = self.send_with_retry(exchange, context, &question).await?;
        let answer = loop {
            let mut answer = upstream.resp_header().map(copy).ok_or_else(|| internal("an answer without a head"))?;
            self.rewrite_response(&mut answer, context)?;
            if !answer.status.is_informational() {
                break answer;
            }
            exchange.write_response_header(Box::new(answer), false).await.map_err(Failure::into_down)?;
            unless_gone(exchange, upstream.read_response()).await?;
        };
        relay_response(exchange, &mut upstream, answer).await?;
        upstream.respect_keepalive();
        if let Some(stream) = upstream.reuse().await {
            self.connector.release_stream(stream, peer.reuse_hash(), peer.idle_timeout());
        }
        Ok(())
    }

    fn encode_head(&self, exchange: &Exchange, context: &mut RequestContext) -> pingora_core::Result<Vec<u8>> {
        let (Some(permit), Some(arrival)) = (&context.permit, &context.arrival) else {
            return Err(internal("no permit"));
        };
        let lines = Lines(&exchange.req_header().headers);
        forward::write_head(&self.gate, permit, arrival, &view(exchange, &lines)).map_err(|error| {
            context.error = Some(error);
            internal("the head cannot be forwarded")
        })
    }

    /// Asks, and waits for the head of the answer.
    async fn send_with_retry(
        &self,
        exchange: &mut Exchange,
        context: &mut RequestContext,
        question: &[u8],
    ) -> pingora_core::Result<(Box<UpstreamExchange>, &HttpPeer)> {
        let Some(permit) = &context.permit else { return Err(internal("no permit")) };
        let (mut failed, mut fresh) = (0, false);
        loop {
            let peer = self.upstreams.next(&permit.rule.upstream);
            context.sent_upstream = Some(Instant::now());
            let connected = if fresh {
                self.connector.new_stream(peer).await.map(|stream| (stream, false))
            } else {
                self.connector.get_stream(peer).await
            };
            let (stream, reused) = match connected {
                Ok(connected) => connected,
                Err(_) if failed < self.upstreams.retries(&permit.rule.upstream) => {
                    failed += 1;
                    continue;
                }
                Err(error) => return Err(error.into_up()),
            };
            let answered = async {
                let mut upstream = send(stream, question, peer).await?;
                upstream.read_response().await?;
                Ok(upstream)
            };
            match unless_gone(exchange, answered).await {
                Ok(upstream) => return Ok((upstream, peer)),
                // Most likely the upstream closed an idle connection while we took it. The client has heard nothing yet,
                // and a GET may be asked twice.
                Err(error) if reused && matches!(error.retry, RetryType::ReusedOnly) => fresh = true,
                Err(error) => return Err(error),
            }
        }
    }
}

/// Boxed: it is handed from future to future.
async fn send(mut stream: Stream, question: &[u8], peer: &HttpPeer) -> pingora_core::Result<Box<UpstreamExchange>> {
    let writing = async {
        stream.write_all(question).await?;
        stream.flush().await
    };
    let written = match peer.options.write_timeout {
        Some(limit) => pingora_timeout::timeout(limit, writing)
            .await
            .map_err(|_| Failure::explain(ErrorType::WriteTimedout, "while asking"))?,
        None => writing.await,
    };
    written.map_err(|cause| {
        let mut error = Failure::because(ErrorType::WriteError, "while asking", cause);
        error.retry = RetryType::ReusedOnly;
        error
    })?;
    let mut upstream = Box::new(UpstreamExchange::new_with_options(stream, peer));
    upstream.read_timeout = peer.options.read_timeout;
    Ok(upstream)
}

/// Passes an answer on, piece by piece.
async fn relay_response(
    exchange: &mut Exchange,
    upstream: &mut UpstreamExchange,
    mut answer: ResponseHeader,
) -> pingora_core::Result<()> {
    let done = upstream.is_body_done();
    let has_length = answer.headers.contains_key(CONTENT_LENGTH) || answer.headers.contains_key(TRANSFER_ENCODING);
    if !done && !has_length {
        // The upstream would end it with its connection; the client can keep its own.
        answer.set_version(Version::HTTP_11);
        answer.insert_header(TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
    }
    exchange.write_response_header(Box::new(answer), done).await.map_err(Failure::into_down)?;
    while !upstream.is_body_done() {
        let piece = unless_gone(exchange, upstream.read_body_bytes()).await?;
        let done = upstream.is_body_done();
        exchange.write_response_body(piece, done).await.map_err(Failure::into_down)?;
    }
    Ok(())
}

/// Does the upstream's part while the client is still there: nobody needs the answer of a client that left.
async fn unless_gone<T>(
    exchange: &mut Exchange,
    work: impl Future<Output = pingora_core::Result<T>>,
) -> pingora_core::Result<T> {
    tokio::select! {
        biased;
        done = work => done.map_err(Failure::into_up),
        gone = exchange.read_body_or_idle(true) => match gone {
            Err(error) => Err(error.into_down()),
            Ok(_) => Err(Failure::explain(ErrorType::InvalidHTTPHeader, "a body that was not announced").into_down()),
        },
    }
}

/// A copy without the names' spelling.
fn copy(answer: &ResponseHeader) -> ResponseHeader {
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = answer.status;
    parts.version = answer.version;
    parts.headers = answer.headers.clone();
    let mut copy = ResponseHeader::from(parts);
    let own_words = answer.get_reason_phrase().filter(|words| Some(*words) != answer.status.canonical_reason());
    if own_words.is_some() {
        // It came as one, so it is one.
        let _ = copy.set_reason_phrase(own_words);
    }
    copy
}

fn internal(what: &'static str) -> Box<Failure> {
    Failure::explain(ErrorType::InternalError, what)
}
