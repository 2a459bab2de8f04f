//! Decides how an effect that is one statement runs with its key in that very statement: one round trip, one commit.

use serde::de::DeserializeOwned;
use steady_core::idempotency::State;

use super::effect::PgSqlError;
use super::fault::{Kind, kind};
use super::guard::is_allowed;
use super::ledger::{Inner, PgLedger};
use super::record::Call;
use super::run::{Runs, SOON, Sent};
use super::schema;
use super::tx::durable;
use super::wire::{Arg, Wire, args};
use crate::error::LedgerError;
use crate::record::code;
use crate::request::{Executed, Request};
use crate::retention::age::carried_time;
use crate::transaction::Answer;

/// Why a statement that was refused by the table of keys was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The key has a record.
    Taken,
    /// Somebody else has the lock of the key.
    Busy,
    /// What has to hold does not: see the statement.
    Rule,
}

/// None if it was not the table of keys that refused: an effect cannot name it.
pub(super) fn refusal(error: &tokio_postgres::Error) -> Option<Refusal> {
    let told = error.as_db_error().filter(|told| told.table() == Some("ledger_key"))?;
    match told.code().code() {
        "23505" => Some(Refusal::Taken),
        "23502" if told.column() == Some("state") => Some(Refusal::Busy),
        "23502" => Some(Refusal::Rule),
        _ => None,
    }
}

impl PgLedger {
    /// As [`PgLedger::execute`], for an effect that is one statement, which returns one row with one column named
    /// `result`: anything that `to_json` takes. It runs in one round trip together with its key.
    ///
    /// ```no_run
    /// # use steady_ledger::{Executed, Key, PgLedger, Request, Scope, tokio_postgres::types::Type};
    /// # async fn reserve(ledger: &PgLedger, request: &Request<'_>) -> Result<(), Box<dyn std::error::Error>> {
    /// let sql = "UPDATE stock SET units = units - $1 WHERE sku = $2 RETURNING units AS result";
    /// let left: i64 = ledger.execute_sql(request, sql, &[(&2_i64, Type::INT8), (&"a-1", Type::TEXT)]).await?.into_inner();
    /// # Ok(()) }
    /// ```
    ///
    /// A statement that returns no row, or several, is rolled back as [`LedgerError::Aborted`]: let it return the refusal
    /// itself, or use [`PgLedger::execute`]. So is one whose result holds the word `input_required` (rule I5). That the
    /// result is a `T` shows only after the commit: [`LedgerError::ResultType`] then says that it is there. It runs under
    /// the isolation that the role begins with (`default_transaction_isolation`, READ COMMITTED unless somebody changed it),
    /// and once. It waits for rows that others have locked, also for
    /// those of a call with its own key that is under way.
    ///
    /// # Errors
    ///
    /// As [`PgLedger::execute`].
    pub async fn execute_sql<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Executed<T>, LedgerError> {
        let inner = &*self.inner;
        let call = inner.call(request)?;
        if !is_allowed(sql) {
            return Err(LedgerError::Forbidden);
        }
        if let Some(answer) = inner.look(&call).await? {
            return inner.executed(answer);
        }
        let mut conn = inner.pool.get().await?;
        if conn.is_closed() {
            conn = inner.pool.anew(conn).await?;
        }
        let ran = run(inner, &conn, &call, sql, args).await;
        let error = match ran {
            Ok(body) => {
                conn.put_back();
                inner.meters.committed.add();
                return inner.executed(Answer { body, replayed: false });
            }
            Err(error) => error,
        };
        match kind(&error) {
            Kind::Lost => {
                drop(conn);
                let answer = Runs::new(inner).find_out(&call, error, Sent::WithLock).await?;
                inner.executed(answer)
            }
            Kind::GivenUp => {
                conn.put_back();
                Err(error.into())
            }
            Kind::Refused => {
                conn.put_back();
                if refusal(&error).is_some()
                    && let Some(answer) = inner.known(&call).await?
                {
                    return inner.executed(answer);
                }
                Err(why(inner, &call, error).await?)
            }
        }
    }
}

/// The bytes of the result. A key that is taken is refused by its index, one whose lock somebody else has by a null in
/// `state`, and whatever else has to hold by a null in `executions`: the first null is the one that is told. Nothing of the
/// effect stays then.
async fn run(
    inner: &Inner,
    wire: &Wire,
    call: &Call,
    sql: &str,
    given: &[Arg<'_>],
) -> Result<Vec<u8>, tokio_postgres::Error> {
    let n = given.len();
    let [clock, lock, principal, operation, key, print, retention, seal, schema, born, horizon] =
        std::array::from_fn::<_, 11, _>(|at| n + 1 + at);
    let carried = carried_time(&call.key).map(|born| born.unix_millis());
    // Few keys carry a time, and the others should not pay for them.
    let age = match carried {
        Some(_) => format!(
            "AND ${born} >= coalesce(forgotten_ms, ${born}) AND ${born} >= coalesce(shown - ${horizon}, ${born})"
        ),
        None => String::new(),
    };
    let durable = durable!();
    let text = format!(
        "WITH effect AS ({sql})
         INSERT INTO ledger_key(principal, operation, key, fingerprint, state, executions, recorded_ms, expires_ms,
                                result, result_digest)
         SELECT ${principal}, ${operation}, ${key}, ${print}, CASE WHEN pg_try_advisory_xact_lock(${lock}) THEN 2 END,
                CASE WHEN schema = ${schema} AND body NOT LIKE '%input\\_required%' {age} THEN 1 END,
                greatest(shown, latest_ms), greatest(shown, latest_ms) + ${retention},
                bytes, sha256(${seal} || sha256(${seal} || bytes))
         FROM (SELECT body, convert_to(body, 'UTF8') AS bytes, schema, latest_ms, forgotten_ms,
                      coalesce(${clock}, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS shown
               FROM (SELECT (SELECT to_json(result)::text FROM effect) AS body OFFSET 0) AS done
                   LEFT JOIN ledger_meta ON true OFFSET 0) AS answer
         RETURNING result, {durable}"
    );
    let result_key = inner.secret.result_key(&call.fingerprint, code(State::Committed));
    let shown = inner.clock_ms();
    let own: &[Arg<'_>] = args![
        shown => INT8, call.lock => INT8, &*call.scope.principal => TEXT, &*call.scope.operation => TEXT,
        call.key.as_str() => TEXT, &call.fingerprint[..] => BYTEA, call.retention_ms => INT8, &result_key[..] => BYTEA,
        schema::NEWEST => INT8, carried => INT8, inner.horizon_ms => INT8,
    ];
    let own = if carried.is_some() { own } else { &own[..own.len() - 2] };
    let mut all: Vec<Arg<'_>> = Vec::with_capacity(n + own.len());
    all.extend(given.iter().chain(own).cloned());
    let row = wire.first(&text, &all).await?;
    Ok(row.and_then(|row| row.get::<_, Option<Vec<u8>>>(0)).unwrap_or_default())
}

/// Why a statement was refused whose key has no record.
async fn why(inner: &Inner, call: &Call, error: tokio_postgres::Error) -> Result<LedgerError, LedgerError> {
    match refusal(&error) {
        // It went in between.
        Some(Refusal::Taken) => return Ok(LedgerError::Busy { operation: None }),
        // Its holder may have let go meanwhile: that says nothing of this statement.
        Some(Refusal::Busy) => return Ok(LedgerError::InFlight { retry_after: SOON }),
        Some(Refusal::Rule) => {}
        None if error.code().is_some_and(|code| code.code() == "57014") => return Ok(LedgerError::TimeLimit),
        None => return Ok(LedgerError::Aborted(PgSqlError::from(error).into())),
    }
    let tx = inner.begin().await?;
    let age = tx.check_age(inner, &call.key);
    tx.roll_back().await;
    age?;
    let told = "the statement returned no row with a result, or one that asks for input";
    Ok(LedgerError::Aborted(told.into()))
}
