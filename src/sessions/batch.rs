//! Reads many sessions in one go, to check what is open after changes may have been missed.

use std::sync::Arc;

use super::{CacheLookup, CachedSession, SessionCache};
use crate::domain::clock::Timestamp;
use crate::domain::session::SessionId;
use crate::error::{Error, Part};

impl SessionCache {
    /// The sessions with these ids, in their order: cached, or read from the store together. `None`: there is none.
    pub async fn sessions(&self, ids: &[SessionId], now: Timestamp) -> Result<Vec<Option<Arc<CachedSession>>>, Error> {
        let mut found = vec![None; ids.len()];
        let (mut read_ids, mut pending) = (Vec::new(), Vec::new());
        for (slot, id) in found.iter_mut().zip(ids) {
            let known = match self.look_up(id, now) {
                CacheLookup::Usable((_, cached)) => {
                    *slot = Some(cached);
                    continue;
                }
                CacheLookup::Fallback(entry) => Some(entry),
                CacheLookup::Absent => None,
            };
            read_ids.push(id.clone());
            pending.push((slot, self.pending_entry(id, now), known));
        }
        if pending.is_empty() {
            return Ok(found);
        }
        match self.read_all(&read_ids).await {
            Ok(read) => {
                for (((slot, entry, _), id), read) in pending.into_iter().zip(&read_ids).zip(read) {
                    *slot = self.fill(id, entry, read, now).map(|(_, cached)| cached);
                }
            }
            Err(error @ Error::Unavailable { part: Part::Store, .. }) => {
                for (slot, _, known) in pending {
                    // It may have changed or ended while the store was asked.
                    let Some(cached) = known.and_then(|entry| entry.live_session(now, self.leeway)) else {
                        return Err(error);
                    };
                    *slot = Some(cached);
                }
                self.outage.note();
            }
            Err(error) => return Err(error),
        }
        Ok(found)
    }
}
