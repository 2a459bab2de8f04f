//! Decides which statements an effect may use, by their text: those that read and write rows, and name no table of the
//! ledger. That no other statement can end the transaction is PostgreSQL's: one message is one statement, and what it calls
//! cannot. The last line of defence is that a key is written only by the transaction that claimed it.

/// The words that a statement may start with.
const WORDS: [&str; 7] = ["select", "insert", "update", "delete", "merge", "with", "values"];

/// Whether an effect may use this statement.
pub(super) fn is_allowed(sql: &str) -> bool {
    let lower = sql.to_ascii_lowercase();
    // An escape could spell any name; a note to another session belongs to the ledger's own wake-ups.
    let names_ledger = lower.contains("ledger_") || lower.contains("u&\"");
    let locks = ["pg_advisory_unlock", "set_config"].iter().any(|name| lower.contains(name));
    !names_ledger && !locks && WORDS.contains(&first_word(&lower))
}

/// The first word after blanks and comments.
fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if rest.starts_with("/*") {
            let Some(after) = after_comment(rest) else { return "" };
            rest = after.trim_start();
        } else if let Some(inner) = rest.strip_prefix('(') {
            rest = inner.trim_start();
        } else {
            return rest.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or_default();
        }
    }
}

/// What follows a comment, in which others may lie.
fn after_comment(sql: &str) -> Option<&str> {
    let (mut depth, mut at) = (0_u32, 0);
    let bytes = sql.as_bytes();
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return sql.get(at..);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_reads_and_writes_rows_and_nothing_else() {
        for good in [
            "SELECT 1",
            " \n-- why\n update account SET balance = 1",
            "/* a /* b */ commit */ INSERT INTO account VALUES (1)",
            "(SELECT 1)",
            "WITH a AS (SELECT 1) DELETE FROM b",
        ] {
            assert!(is_allowed(good), "{good}");
        }
        for bad in [
            "COMMIT",
            "/* select */ ROLLBACK",
            "-- select\ncommit",
            "commit -- select",
            "END",
            "SAVEPOINT a",
            "SET LOCAL synchronous_commit = off",
            "SELECT set_config('synchronous_commit', 'off', true)",
            "SELECT pg_advisory_unlock_all()",
            "DO $$ BEGIN COMMIT; END $$",
            "CALL ends()",
            "PREPARE TRANSACTION 'a'",
            "LISTEN a",
            "CREATE TABLE a(b int)",
            "UPDATE Ledger_Key SET state = 1",
            "SELECT * FROM U&\"\\006cedger_key\"",
            "/* unfinished",
            "",
        ] {
            assert!(!is_allowed(bad), "{bad}");
        }
    }
}
