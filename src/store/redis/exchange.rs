//! Sends calls to one server and tells which answer is whose.

use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, ErrorKind, Pipeline, RedisError, Value};

use super::layout::{Layout, Primary};
use super::script::RedisCall;

/// A call that has no answer yet.
pub(super) struct PendingCall<'a> {
    pub(super) index: usize,
    pub(super) call: &'a RedisCall,
    /// In place of the call's own: the script's text.
    pub(super) command: Option<Cmd>,
    /// The member that takes over the slot.
    pub(super) importing: Option<Arc<Primary>>,
}

impl PendingCall<'_> {
    fn command(&self) -> &Cmd {
        self.command.as_ref().unwrap_or(&self.call.command)
    }
}

/// What became of a call.
pub(super) enum SentCall<'a> {
    Answered(usize, Value),
    NotRun(PendingCall<'a>),
    Moved(PendingCall<'a>),
}

pub(super) type CallGroups<'a> = Vec<(Arc<Primary>, Vec<PendingCall<'a>>)>;

/// The calls of each server, and those of no known server.
pub(super) fn split<'a>(layout: &Layout, calls: &'a [RedisCall]) -> Vec<Vec<PendingCall<'a>>> {
    let mut parts: Vec<(Option<&Arc<Primary>>, Vec<PendingCall<'a>>)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let (primary, call) =
            (layout.primary(call.partition), PendingCall { index, call, command: None, importing: None });
        match parts.iter_mut().find(|(known, _)| known.map(Arc::as_ptr) == primary.map(Arc::as_ptr)) {
            Some((_, calls)) => calls.push(call),
            None => parts.push((primary, vec![call])),
        }
    }
    parts.into_iter().map(|(_, calls)| calls).collect()
}

/// The calls of each server; all of them back if one has no server.
pub(super) fn group<'a>(layout: &Layout, calls: Vec<PendingCall<'a>>) -> Result<CallGroups<'a>, Vec<PendingCall<'a>>> {
    if !calls.iter().all(|call| call.importing.is_some() || layout.primary(call.call.partition).is_some()) {
        return Err(calls);
    }
    let mut groups: CallGroups<'a> = Vec::new();
    for call in calls {
        let Some(primary) = call.importing.as_ref().or_else(|| layout.primary(call.call.partition)) else { continue };
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, primary)) {
            Some((_, calls)) => calls.push(call),
            None => groups.push((primary.clone(), vec![call])),
        }
    }
    Ok(groups)
}

/// Sends the calls in one go and returns one answer for each.
pub(super) async fn exchange(
    mut connection: MultiplexedConnection,
    calls: &[PendingCall<'_>],
    confirmation: Option<Cmd>,
) -> Result<Vec<Value>, RedisError> {
    if let ([call], None) = (calls, &confirmation)
        && call.importing.is_none()
    {
        return Ok(vec![connection.send_packed_command(call.command()).await?]);
    }
    let mut pipeline = Pipeline::new();
    for call in calls {
        if call.importing.is_some() {
            pipeline.add_command(::redis::cmd("ASKING"));
        }
        pipeline.add_command(call.command().clone());
    }
    let is_confirmed = confirmation.is_some();
    if let Some(confirmation) = confirmation {
        pipeline.add_command(confirmation);
    }
    let mut answers = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
    if is_confirmed {
        check_confirmed(answers.pop().unwrap_or(Value::Nil))?;
    }
    let mut answers = answers.into_iter();
    let answer_of = |call: &PendingCall<'_>| {
        if call.importing.is_some() {
            answers.next();
        }
        answers.next().ok_or_else(|| (ErrorKind::UnexpectedReturnType, "an answer is missing").into())
    };
    calls.iter().map(answer_of).collect()
}

fn check_confirmed(answer: Value) -> Result<(), RedisError> {
    let confirmed = match answer.extract_error()? {
        Value::Array(counts) => counts.into_iter().next().unwrap_or(Value::Nil),
        count => count,
    };
    match ::redis::from_redis_value::<u64>(confirmed)? {
        0 => Err((ErrorKind::Client, "the change was not confirmed in time (store.confirm)").into()),
        _ => Ok(()),
    }
}

/// Whether a server that answers so answers nothing else: it was demoted, or wants another password.
pub(super) fn refuses_everything(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if matches!(error.code(), "READONLY" | "MASTERDOWN" | "NOAUTH"))
}

/// Whether a call was answered with what cannot be its answer.
pub(super) fn is_unexpected(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedReturnType | ErrorKind::Parse)
}

pub(super) fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
