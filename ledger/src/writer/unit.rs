//! Decides what the writer knows of a piece of work: how to do it, how to find out later whether it was done, and whom
//! to answer.

use std::sync::Arc;

use crate::error::LedgerError;
use crate::file::Db;
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
    run: Run<R>,
    look_up: Option<LookUp<R>>,
    /// What to do once it is decided, before its caller is answered.
    after: Option<Box<dyn FnOnce() + Send>>,
    decided: Option<Result<R, LedgerError>>,
    caller: Sender<Result<R, LedgerError>>,
}

/// Where the answer to a unit comes out.
pub(crate) type Answering<R> = Receiver<Result<R, LedgerError>>;

impl<R> Unit<R> {
    pub(crate) fn new(
        operation: &str,
        run: impl FnMut(&Db) -> Result<R, LedgerError> + Send + 'static,
    ) -> (Self, Answering<R>) {
        let (caller, answering) = reply();
        let operation = operation.into();
        (Self { operation, run: Box::new(run), look_up: None, after: None, decided: None, caller }, answering)
    }

    /// The same work, whose outcome can be looked up. Without this an unknown commit stays unknown.
    pub(crate) fn look_up(self, look_up: impl FnMut(&Db) -> Result<Option<R>, LedgerError> + Send + 'static) -> Self {
        Self { look_up: Some(Box::new(look_up)), ..self }
    }

    /// The same work, after which something else has to be done, whatever it came to. It may not panic.
    pub(crate) fn after(self, after: impl FnOnce() + Send + 'static) -> Self {
        Self { after: Some(Box::new(after)), ..self }
    }
}

impl<R: Send> Work for Unit<R> {
    fn operation(&self) -> &Arc<str> {
        &self.operation
    }

    fn run(&mut self, db: &Db) -> bool {
        let decided = (self.run)(db);
        let keep = decided.is_ok();
        self.decided = Some(decided);
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
        self.decided = Some(Err(error));
    }

    fn recover(&mut self, failure: &CommitFailure, db: &Db) {
        self.decided = Some(match &mut self.look_up {
            None => Err(failure.without_look_up()),
            Some(look_up) => look_up(db).and_then(|found| found.ok_or_else(|| failure.nothing_committed())),
        });
    }

    fn is_done(&self) -> bool {
        matches!(self.decided, Some(Ok(_)))
    }

    fn answer(self: Box<Self>) {
        if let Some(after) = self.after {
            after();
        }
        if let Some(decided) = self.decided {
            self.caller.send(decided);
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
