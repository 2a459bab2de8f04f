//! Decides what an error of the database means for a call.

use std::error::Error;

use tokio_postgres::error::SqlState;

use crate::error::LedgerError;

/// What follows from an error of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The connection is gone, or about to go.
    Lost,
    /// The transaction was given up for the sake of another one: nothing of it is there, and it can be tried again.
    GivenUp,
    /// The database answers, and refuses.
    Refused,
}

pub(super) fn kind(error: &tokio_postgres::Error) -> Kind {
    let Some(code) = error.code() else { return Kind::Lost };
    match code.code() {
        "40001" | "40P01" => Kind::GivenUp,
        // Connection exceptions and the operator's interventions, but a cancelled statement.
        "57014" => Kind::Refused,
        text if text.starts_with("08") || text.starts_with("57") => Kind::Lost,
        // A timeout that ends the session.
        "25P03" | "25P04" => Kind::Lost,
        _ => Kind::Refused,
    }
}

/// Whether the server process itself said that it ends, and so reads nothing more. A pooler's errors have a code as well, and
/// say nothing of the process behind it.
pub(super) fn is_last_word(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code().starts_with("57P0") || code.code().starts_with("25P0"))
}

/// What a call is told of an error that came before any commit was asked for.
pub(super) fn refused(error: tokio_postgres::Error) -> LedgerError {
    match error.code() {
        Some(code) if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            LedgerError::Busy { operation: None }
        }
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::TOO_MANY_CONNECTIONS => {
            LedgerError::Busy { operation: None }
        }
        Some(code) if *code == SqlState::DATA_CORRUPTED || *code == SqlState::INDEX_CORRUPTED => {
            LedgerError::Corrupt { part: "the database says that its files are damaged" }
        }
        Some(code) if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN => {
            LedgerError::ForeignFile
        }
        Some(_) | None => LedgerError::Storage(Box::new(Told(error))),
    }
}

/// An error of the database without what it quotes: its detail can hold a key or an argument.
#[derive(Debug)]
struct Told(tokio_postgres::Error);

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.as_db_error() {
            Some(error) => write!(f, "{} (SQLSTATE {})", error.message(), error.code().code()),
            None => match self.0.source() {
                Some(source) => write!(f, "{}: {source}", self.0),
                None => self.0.fmt(f),
            },
        }
    }
}

impl Error for Told {}

impl From<tokio_postgres::Error> for LedgerError {
    fn from(error: tokio_postgres::Error) -> Self {
        refused(error)
    }
}
