//! What is known of the mutants: a file for each area, and what a run of cargo-mutants adds to it.

use crate::error::Error;
use crate::table::Table;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// With which tests mutants are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Near,
    All,
}

impl Pass {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::All => "all",
        }
    }
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Untried,
    /// The tests near it do not notice it.
    PastNear,
    Noticed,
    /// Noticed, since a test did not come to its end.
    Timeout,
    /// It does not compile.
    Unviable,
    Survived,
}

impl Fate {
    const ALL: [Self; 6] =
        [Self::Untried, Self::PastNear, Self::Noticed, Self::Timeout, Self::Unviable, Self::Survived];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Untried => "untried",
            Self::PastNear => "past-near",
            Self::Noticed => "noticed",
            Self::Timeout => "timeout",
            Self::Unviable => "unviable",
            Self::Survived => "survived",
        }
    }
}

/// What is known of the mutants of an area, kept in a file.
pub(crate) struct Ledger {
    pub(crate) folder: PathBuf,
    /// For each file, a number for its content.
    prints: BTreeMap<String, String>,
    known: BTreeMap<String, Fate>,
    /// Those that are asked for, in the order of the code.
    chosen: Vec<String>,
}

impl Ledger {
    /// What is known of the `chosen` mutants, from the file and from a run that was stopped. What was found out about
    /// other code than that of `prints`, a fingerprint for each file, does not count.
    pub(crate) fn open(folder: PathBuf, prints: BTreeMap<String, String>, chosen: Vec<String>) -> Result<Self, Error> {
        let path = folder.join("outcomes.tsv");
        let text = if path.exists() { fs::read_to_string(&path).map_err(Error::file(&path))? } else { String::new() };
        let mut ledger = Self { folder, prints, known: BTreeMap::new(), chosen };
        let known = text.lines().filter_map(|line| {
            let mut cells = line.splitn(3, '\t');
            let (word, print, name) = (cells.next()?, cells.next()?, cells.next()?);
            let fate = Fate::ALL.into_iter().find(|fate| fate.word() == word)?;
            (ledger.print(name) == print).then(|| (name.to_string(), fate))
        });
        ledger.known = known.collect();
        ledger.harvest()?;
        for name in &ledger.chosen {
            ledger.known.entry(name.clone()).or_insert(Fate::Untried);
        }
        ledger.write()?;
        Ok(ledger)
    }

    /// The fingerprint of the file that a mutant is in; its name begins with the path.
    fn print(&self, name: &str) -> &str {
        let path = name.split(':').next().unwrap_or_default();
        self.prints.get(path).map_or("", String::as_str)
    }

    fn write(&self) -> Result<(), Error> {
        let path = self.folder.join("outcomes.tsv");
        let line = |(name, fate): (&String, &Fate)| format!("{}\t{}\t{name}\n", fate.word(), self.print(name));
        fs::write(&path, self.known.iter().map(line).collect::<String>()).map_err(Error::file(&path))
    }

    pub(crate) fn mutants(&self) -> impl Iterator<Item = (&String, Fate)> {
        self.chosen.iter().map(|name| (name, self.known[name]))
    }

    /// What no test noticed, or none of those near it.
    pub(crate) fn survivors(&self) -> impl Iterator<Item = (&String, Fate)> {
        self.mutants().filter(|(_, fate)| matches!(fate, Fate::Survived | Fate::PastNear))
    }

    /// Which mutants have to be tried. A survivor is always tried again: there may be a new test.
    pub(crate) fn to_try(&self) -> Vec<String> {
        let open = |fate| match fate {
            Fate::Untried | Fate::PastNear | Fate::Survived => true,
            Fate::Noticed | Fate::Timeout | Fate::Unviable => false,
        };
        self.mutants().filter(|(_, fate)| open(*fate)).map(|(name, _)| name.clone()).collect()
    }

    /// Takes over and writes down what cargo-mutants has left, also where it was stopped; the mutants
    /// that it tried.
    pub(crate) fn harvest(&mut self) -> Result<BTreeSet<String>, Error> {
        let mut tried = BTreeSet::new();
        for pass in [Pass::Near, Pass::All] {
            let missed = if pass == Pass::Near { Fate::PastNear } else { Fate::Survived };
            let output = self.folder.join(pass.word());
            let lists = [
                ("caught", Fate::Noticed),
                ("timeout", Fate::Timeout),
                ("unviable", Fate::Unviable),
                ("missed", missed),
            ];
            for (list, fate) in lists {
                let path = output.join("mutants.out").join(list).with_extension("txt");
                if path.exists() {
                    let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
                    for name in text.lines() {
                        tried.insert(name.to_string());
                        // One that is not known was found in code that is no more.
                        self.known.entry(name.to_string()).and_modify(|known| *known = fate);
                    }
                }
            }
            // Taken over once: later it would be old.
            remove_folder(&output)?;
        }
        self.write()?;
        Ok(tried)
    }
}

fn remove_folder(path: &Path) -> Result<(), Error> {
    if path.exists() { fs::remove_dir_all(path).map_err(Error::file(path)) } else { Ok(()) }
}

/// How many mutants came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    mutants: usize,
    noticed: usize,
    timeout: usize,
    unviable: usize,
    survived: usize,
    /// Not tried, or not with all tests.
    open: usize,
}

impl Score {
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let count = |wanted| ledger.mutants().filter(|(_, fate)| *fate == wanted).count();
        Self {
            mutants: ledger.chosen.len(),
            noticed: count(Fate::Noticed),
            timeout: count(Fate::Timeout),
            unviable: count(Fate::Unviable),
            survived: count(Fate::Survived),
            open: count(Fate::Untried) + count(Fate::PastNear),
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.mutants += other.mutants;
        self.noticed += other.noticed;
        self.timeout += other.timeout;
        self.unviable += other.unviable;
        self.survived += other.survived;
        self.open += other.open;
    }

    pub(crate) fn row(self, name: &str, table: &mut Table) {
        let (noticed, viable) = (self.noticed + self.timeout, self.noticed + self.timeout + self.survived);
        let score = (noticed * 1000)
            .checked_div(viable)
            .map_or_else(|| "-".to_string(), |permille| format!("{}.{} %", permille / 10, permille % 10));
        let numbers = [self.mutants, self.noticed, self.timeout, self.unviable, self.survived, self.open];
        table.row([name.to_string()].into_iter().chain(numbers.map(|n| n.to_string())).chain([score]));
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Ledger, Pass, Score};
    use crate::table::Table;
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    /// A folder with what a run of `pass` left there.
    fn left(folder: &Path, pass: Pass, lists: &[(&str, &str)]) {
        let out = folder.join(pass.word()).join("mutants.out");
        fs::create_dir_all(&out).unwrap();
        lists.iter().for_each(|(list, text)| fs::write(out.join(format!("{list}.txt")), text).unwrap());
    }

    #[test]
    fn a_stopped_run_goes_on_and_new_code_begins_anew() {
        let folder = std::env::temp_dir().join(format!("steady-mutants-{}", std::process::id()));
        let open = |code: &str| {
            let chosen = ["a:1", "a:2", "a:3", "a:4", "b:1"].map(str::to_string).to_vec();
            let prints = [("a", code), ("b", "0")].map(|(path, print)| (path.to_string(), print.to_string()));
            fs::create_dir_all(&folder).unwrap();
            Ledger::open(folder.clone(), prints.into(), chosen).unwrap()
        };
        let mut ledger = open("1");
        assert_eq!(ledger.to_try().len(), 5);
        left(&folder, Pass::Near, &[("caught", "a:1\n"), ("missed", "a:2\na:3\n"), ("unviable", "a:4\n")]);
        assert_eq!(ledger.harvest().unwrap().len(), 4);
        assert_eq!(ledger.to_try(), ["a:2", "a:3", "b:1"]);

        left(&folder, Pass::All, &[("missed", "a:2\n"), ("timeout", "a:3\n")]);
        assert_eq!(open("1").to_try(), ["a:2", "b:1"], "a survivor is tried again");
        let ledger = open("1");
        let fates: BTreeMap<&str, Fate> = ledger.mutants().map(|(name, fate)| (name.as_str(), fate)).collect();
        let expected = [
            ("a:1", Fate::Noticed),
            ("a:2", Fate::Survived),
            ("a:3", Fate::Timeout),
            ("a:4", Fate::Unviable),
            ("b:1", Fate::Untried),
        ];
        assert_eq!(fates, BTreeMap::from(expected));

        left(&folder, Pass::All, &[("caught", "a:2\nb:1\n")]);
        assert_eq!(open("2").to_try(), ["a:1", "a:2", "a:3", "a:4"], "the code of one file is new");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_score_leaves_out_what_does_not_compile() {
        let mut score = Score { mutants: 6, noticed: 1, timeout: 1, unviable: 2, survived: 1, open: 1 };
        let mut table = Table::new(&["area", "mutants"]);
        score.row("a", &mut table);
        score.add(score);
        score.row("twice", &mut table);
        Score::default().row("none", &mut table);
        let text = table.render();
        let cells: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["a", "6", "1", "1", "2", "1", "1", "66.6", "%"]);
        assert_eq!(cells[1], ["twice", "12", "2", "2", "4", "2", "2", "66.6", "%"]);
        assert_eq!(cells[2], ["none", "0", "0", "0", "0", "0", "0", "-"]);
    }
}
