//! Decides what the writer knows of a piece of work: how to do it, how to find out later whether it was done, and whom
//! to answer.

use std::sync::Arc;

use crate::error::LedgerError;
use crate::file::Db;
use crate::guard::quietly;
use crate::transaction::CommitFailure;
use crate::writer::reply::{Receiver, Sender, reply};

/// Does something in the current transaction. It is called again if that transaction was rolled back for a reason of
/// its own.
type Run<R> = Box<dyn FnMut(&Db) -> Result<R, LedgerError> + Send>;
/// Finds on another connection what a commit of unknown outcome left behind; none if nothing. Its error is the answer.
type LookUp<R> = Box<dyn FnMut(&Db) -> Result<Option<R>, LedgerError> + Send>;

/// A piece of work for the writer, without the type of its answer.
pub(crate) trait Work: Send {
    /// What to name when others have to wait for it.
    fn operation(&self) -> &Arc<str>;
    /// Does it, in a savepoint of its own. Says whether what it wrote is to be kept.
    fn run(&mut self, db: &Db) -> bool;
    /// Whether it was decided that it failed, for a reason that has nothing to do with its transaction: nothing of it was
    /// kept, so whatever becomes of that transaction, this is its answer.
    fn has_failed(&self) -> bool;
    /// Decides that it failed.
    fn fail(&mut self, error: LedgerError);
    /// Decides what a commit of unknown outcome came to, on another connection.
    fn recover(&mut self, failure: &CommitFailure, db: &Db);
    /// Whether it was decided that it is carried out.
    fn is_done(&self) -> bool;
    /// Answers its caller with what was decided.
    fn answer(self: Box<Self>);
}

/// A piece of work with its answer.
pub(crate) struct Unit<R> {
    operation: Arc<str>,
    /// None once it is answered.
    run: Option<Run<R>>,
    look_up: Option<LookUp<R>>,
    /// What to do once it is decided, before its caller is answered.
    after: Option<Box<dyn FnOnce() + Send>>,
    decided: Option<Result<R, LedgerError>>,
    /// None once it is answered.
    caller: Option<Sender<Result<R, LedgerError>>>,
}

/// Where the answer to a unit comes out.
pub(crate) type Answering<R> = Receiver<Result<R, LedgerError>>;

impl<R> Unit<R> {
    pub(crate) fn new(
        operation: &str,
        run: impl FnMut(&Db) -> Result<R, LedgerError> + Send + 'static,
    ) -> (Self, Answering<R>) {
        let (caller, answering) = reply();
        let (operation, run) = (operation.into(), Some::<Run<R>>(Box::new(run)));
        (Self { operation, run, look_up: None, after: None, decided: None, caller: Some(caller) }, answering)
    }

    /// The same work, whose outcome can be looked up. Without this an unknown commit stays unknown.
    pub(crate) fn look_up(
        mut self,
        look_up: impl FnMut(&Db) -> Result<Option<R>, LedgerError> + Send + 'static,
    ) -> Self {
        self.look_up = Some(Box::new(look_up));
        self
    }

    /// The same work, after which something else has to be done, whatever it came to. It may not panic.
    pub(crate) fn after(mut self, after: impl FnOnce() + Send + 'static) -> Self {
        self.after = Some(Box::new(after));
        self
    }

    fn decide(&mut self, decided: Result<R, LedgerError>) {
        let before = self.decided.replace(decided);
        // It may be an error of the application.
        quietly(|| drop(before));
    }

    /// Answers the caller, and only then lets go of what the work captured. An answer can be of the application's making
    /// too, and so is the waker.
    fn end(&mut self, answer: Result<R, LedgerError>) {
        if let Some(caller) = self.caller.take() {
            quietly(|| caller.send(answer));
        }
        let (run, look_up) = (self.run.take(), self.look_up.take());
        quietly(|| drop(run));
        quietly(|| drop(look_up));
    }
}

impl<R: Send> Work for Unit<R> {
    fn operation(&self) -> &Arc<str> {
        &self.operation
    }

    fn run(&mut self, db: &Db) -> bool {
        let Some(run) = &mut self.run else { return false };
        let decided = run(db);
        let keep = decided.is_ok();
        self.decide(decided);
        keep
    }

    fn has_failed(&self) -> bool {
        match &self.decided {
            // What is read of others may have been theirs in the same transaction, and gone with it.
            Some(Err(error)) => error.is_of_effect() || self.look_up.is_none(),
            Some(Ok(_)) | None => false,
        }
    }

    fn fail(&mut self, error: LedgerError) {
        self.decide(Err(error));
    }

    fn recover(&mut self, failure: &CommitFailure, db: &Db) {
        let decided = match &mut self.look_up {
            None => Err(failure.without_look_up()),
            Some(look_up) => look_up(db).and_then(|found| found.ok_or_else(|| failure.nothing_committed())),
        };
        self.decide(decided);
    }

    fn is_done(&self) -> bool {
        matches!(self.decided, Some(Ok(_)))
    }

    fn answer(mut self: Box<Self>) {
        if let Some(after) = self.after.take() {
            after();
        }
        if let Some(decided) = self.decided.take() {
            self.end(decided);
        }
    }
}

impl<R> Drop for Unit<R> {
    /// Whoever drops it without an answer was in the middle of it.
    fn drop(&mut self) {
        if self.caller.is_some() {
            self.end(Err(LedgerError::CommitUnknown("the writer ended in the middle of its work".into())));
        }
    }
}

/// The answer to a unit whose commit failed in an unknown way, and which was committed all the same, or not.
#[cfg(test)]
pub(crate) fn recovered<R: Send>(
    reader: &crate::lane::Lane,
    (mut unit, answering): (Unit<R>, Answering<R>),
) -> Result<R, LedgerError> {
    let recover = |db: &_| {
        unit.recover(&CommitFailure::unknown(), db);
        Ok(())
    };
    reader.with(recover)?;
    Box::new(unit).answer();
    answering.wait().unwrap_or(Err(LedgerError::Closed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not `Closed`, which says that nothing happened.
    #[test]
    fn a_unit_that_is_lost_without_an_answer_is_unknown() {
        let (unit, answering) = Unit::<i64>::new("charge", |_| Ok(1));
        drop(unit);
        assert!(matches!(answering.wait(), Some(Err(LedgerError::CommitUnknown(_)))));
    }
}
