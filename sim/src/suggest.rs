//! Whether a word is probably a misspelling of another one.

/// Whether `word` differs from `known` by at most two letters that were left out, added, changed or swapped, and by no
/// more than a third of it.
#[must_use]
pub fn is_near(word: &str, known: &str) -> bool {
    let allowed = (known.chars().count() / 3).clamp(1, 2);
    distance(word, known) <= allowed
}

/// The edit distance, with neighbours that are swapped as one edit. Long words are not compared.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > LONGEST || b.len() > LONGEST {
        return LONGEST;
    }
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn small_slips_are_near_and_other_words_are_not() {
        for (word, known) in
            [("cancle", "cancel"), ("idel", "idle"), ("progess", "progress"), ("transprt", "transport")]
        {
            assert!(is_near(word, known), "{word} {known}");
        }
        for (word, known) in [("tcp", "http"), ("wait", "call"), ("", "idle"), ("maximum", "max")] {
            assert!(!is_near(word, known), "{word} {known}");
        }
        assert!(!is_near(&"x".repeat(1_000_000), "cancel"));
    }
}
