"""Tests of broadcast classifiers at a node: the policy first, then an account, then coarse, masked or noised results.

Clear results are sums over all clients of the node, signed by each of them. Under secure sums every client makes a
masked report of its own, which only the helper's sum over a batch opens. Under an epsilon nothing is told but how many
samples were tested and how many answers were right, with noise that the client draws itself.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from fedmoments.core.classifier import Classifier, load_bytes
from fedmoments.errors import InputError, PolicyError, in_full
from fedmoments.federation.audit import fewest
from fedmoments.federation.evaluation import LocalEvaluation
from fedmoments.federation.evaluation.alone import fitted_alone
from fedmoments.federation.flower.held import Held
from fedmoments.federation.flower.holdings import Holdings, holdings_of
from fedmoments.federation.flower.node import Node
from fedmoments.federation.outbox.answers import Answers, Spent
from fedmoments.federation.terms import Terms
from fedmoments.privacy.dp.accountant import ROUNDING, least_ratio
from fedmoments.privacy.secure import make_report
from fedmoments.wire import pack_bundle

__all__ = ["Answer", "Examiner", "heads_digest", "signed_results"]

#: Accounts of clients without a folder, which are simulated: by federation, as long as their process lives.
_SIMULATED: dict[str, Answers] = {}


@dataclass(frozen=True)
class Answer:
    """What a node answers: a bundle (one evaluation a head, or one masked report a client), whose, and signatures."""

    bundle: bytes
    clients: tuple[str, ...]
    signatures: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Return all but the bundle, ready for JSON."""
        return {"clients": list(self.clients), "signatures": list(self.signatures)}


#: Stands for the answer to a question whose test failed; no bundle is empty.
FAILED = b""
#: Largest parameter of a head that is tested, and how far its temperature may lie from 1.
LARGEST, COLDEST = 1e30, 1e-10


def _require_tested(answer: bytes) -> None:
    if answer == FAILED:
        raise InputError("these classifiers could not be tested here: this client's own record says why")


def _require_moderate(classifier: Classifier) -> None:
    """Refuse parameters at which scores of some features would overflow, whatever features there are."""
    arrays = [array for _, array in classifier.arrays() if array.dtype.kind == "f"]
    known = [array[array != -np.inf] for array in arrays]  # the bias of a class that nobody has
    moderate = all((np.abs(array) <= LARGEST).all() for array in known)  # NaN is not
    if not moderate or not COLDEST <= classifier.temperature <= 1 / COLDEST:
        raise InputError(
            f"a classifier that is to be tested has parameters beyond {LARGEST:g}, NaN, or a temperature beyond "
            f"{COLDEST:g} to {1 / COLDEST:g}: no fit gives such, and which samples they fail for would tell of these"
        )


def heads_digest(heads: Sequence[bytes]) -> str:
    """Return the SHA-256 of classifiers that are tested together, in their order."""
    return sha256(b"".join(sha256(head).digest() for head in heads)).hexdigest()


def signed_results(terms: Terms, heads: str, bundle: bytes) -> bytes:
    """Return what a client signs of clear results: for which federation, of which classifiers."""
    return f"fedmoments evaluation 1\n{terms.id}\n{heads}\n{sha256(bundle).hexdigest()}".encode()


@contextmanager
def _account(folder: str, terms: Terms) -> Iterator[Answers]:
    """Open the account of a client: on its disk, or that of a simulation."""
    if not folder:
        yield _SIMULATED.setdefault(terms.id, Answers(None))
        return
    answers = Answers(folder)
    try:
        yield answers
    finally:
        answers.close()


class Examiner:
    """Tests classifiers on the held-out samples of a node.

    Parameters
    ----------
    node
        Whose.
    """

    def __init__(self, node: Node) -> None:
        self._node, self._settings, self._policy = node, node.settings, node.policy

    def answer(self, terms: Terms, heads: Sequence[bytes]) -> Answer:
        """Return what leaves of a test of these classifiers.

        Raises
        ------
        PolicyError
            When the policy forbids it, or allows no more classifiers; nothing was tested then.
        InputError
            When a classifier is not one that these terms give.
        """
        who = self._settings.name or "all clients of this node"
        try:
            self._node.require_terms(terms)
            self._policy.require(terms)
            self._policy.require_evaluation(terms)
            if not self._settings.evaluate:
                raise PolicyError("this client tests no classifiers (evaluate = false)")
            answer = self._masked if terms.privacy.mode.has_helper else self._clear
            with _account(self._settings.folder, terms) as answers:
                return answer(terms, heads, answers)
        except PolicyError as error:
            self._node.outbox.declined(terms, who, str(error))
            raise

    def _clear(self, terms: Terms, heads: Sequence[bytes], answers: Answers) -> Answer:
        holdings = holdings_of(self._settings, terms)
        tests = {client: holdings.test(client) for client in holdings.clients}

        def make(spent: Spent) -> bytes:
            classifiers = self._classifiers(terms, heads, spent)
            least = self._policy.min_count
            with self._charged(terms, who) as failed:
                results = [self._told(holdings, classifier, tests, least, least) for classifier in classifiers]
            if failed:
                return FAILED
            self._write_down(terms, results, heads, tests)
            return pack_bundle([result.to_bytes() for result in results])

        who, loss = self._together, self._loss(terms, heads)
        question = self._question(terms, heads, tests)
        bundle = answers.give(who, question, terms.id, len(heads), make, loss=loss, others=holdings.clients)
        _require_tested(bundle)
        text = signed_results(terms, heads_digest(heads), bundle)
        signatures = tuple(self._node.identity(client).sign(text).hex() for client in holdings.clients)
        return Answer(bundle, holdings.clients, signatures)

    def _masked(self, terms: Terms, heads: Sequence[bytes], answers: Answers) -> Answer:
        holdings = holdings_of(self._settings, terms)
        context = terms.context.testing(heads_digest(heads))
        reports = []
        for client in holdings.clients:
            terms.privacy.mode.check_kept(client, kept=bool(self._settings.folder))
            tests, key = {client: holdings.test(client)}, self._node.identity(client)

            def make(spent: Spent, tests: dict[str, Held] = tests, key: Any = key) -> bytes:
                classifiers = self._classifiers(terms, heads, spent)
                # masks hide who holds few samples of a class, not what a crafted head tells of few of them
                minimum = fewest(self._policy)
                (name,) = tests
                with self._charged(terms, name) as failed:
                    results = [self._told(holdings, classifier, tests, 1, minimum) for classifier in classifiers]
                if failed:
                    return FAILED
                self._write_down(terms, results, heads, tests)
                vector = np.concatenate([result.to_vector() for result in results])
                return make_report(vector, context, client=name, version=1, helper=terms.privacy.helper, key=key)

            question = self._question(terms, heads, tests)
            loss, others = self._loss(terms, heads), (self._together,)
            reports.append(answers.give(client, question, terms.id, len(heads), make, loss=loss, others=others))
            _require_tested(reports[-1])
        return Answer(pack_bundle(reports), holdings.clients)

    @property
    def _together(self) -> str:
        """Name of the account of all clients of this node, whose results are added up where nothing masks them."""
        return f"{self._settings.name} {self._settings.partitions}"

    def _classifiers(self, terms: Terms, heads: Sequence[bytes], spent: Spent) -> list[Classifier]:
        """Return the classifiers, once they are as many as the policy allows and those that these terms give."""
        most = self._policy.max_heads
        if not heads or spent.heads + len(heads) > most:
            raise PolicyError(
                f"the federation '{terms.name}' asks for what this client's policy forbids: max_heads: {len(heads)} "
                f"classifiers are to be tested and {spent.heads} were before, allowed are {most} in all; nothing was "
                "tested"
            )
        loss = self._loss(terms, heads)
        if loss and spent.loss + loss > self._budget(terms) * (1 + ROUNDING):
            raise PolicyError(
                f"noised tests before spent so much of ε = {terms.privacy.epsilon:g} that {len(heads)} more are too "
                "many (max_heads was lower then, or ε larger): nothing was tested"
            )
        classifiers = [load_bytes(head) for head in heads]
        for classifier in classifiers:
            if classifier.class_names != terms.classes or classifier.feature_map != terms.map_or_none:
                raise InputError("a classifier that is to be tested has other classes or another map than the terms")
            _require_moderate(classifier)
        return classifiers

    @contextmanager
    def _charged(self, terms: Terms, who: str) -> Iterator[list[Exception]]:
        """Catch what fails while samples are looked at, so that it is charged like an answer and tells nothing.

        Whether a test fails may depend on one sample: a server that may fail for nothing has as many questions as it
        likes, each of one bit and not coarse.
        """
        failed: list[Exception] = []
        try:
            yield failed
        except Exception as error:  # whatever it is that a crafted head makes of somebody's sample
            failed.append(error)
            self._node.outbox.declined(terms, who, f"a test failed, and counts as one: {in_full(error)}")

    def _told(
        self, holdings: Holdings, classifier: Classifier, tests: dict[str, Held], least: int, minimum: int
    ) -> LocalEvaluation:
        """Return results on classes of ``least`` samples or more, with no count below ``minimum``, or noised."""
        terms = holdings.terms
        noisy = terms.privacy.mode.noise.is_on
        counts = sum((np.bincount(held.y, minlength=classifier.n_classes) for held in tests.values()), np.zeros(1, int))
        total = LocalEvaluation.zero(classifier.n_classes)
        for client, held in tests.items():
            enough = (counts >= (1 if noisy else least))[held.y]
            if enough.any():
                samples = np.asarray(held.X[enough], np.float64)  # in which no head that is moderate overflows
                alone = None
                if not noisy and not self._settings.by_file:
                    own = holdings.train(client)
                    alone = fitted_alone(classifier, np.asarray(own.X, np.float64), own.y)
                warmth, y = classifier.temperature, held.y[enough]
                total += LocalEvaluation.of(classifier, samples, y, warmth, alone=alone, drawn=True)
        return total.noised(self._scale(terms)) if noisy else total.coarse(minimum)

    @staticmethod
    def _budget(terms: Terms) -> float:
        """Return Σ Δ²/σ² of all noised tests that keep the terms' (ε, δ) for one held-out sample."""
        return least_ratio(float(terms.privacy.epsilon or 0.0), terms.privacy.delta) ** -2

    def _loss(self, terms: Terms, heads: Sequence[bytes]) -> float:
        """Return Σ Δ²/σ² of a test of these heads: `max_heads` of them fill the budget."""
        if not terms.privacy.mode.noise.is_on:
            return 0.0
        return self._budget(terms) * len(heads) / self._policy.max_heads

    def _scale(self, terms: Terms) -> float:
        """Return σ of the noise on the two numbers of one head, of which one sample changes both or, replaced, one."""
        sensitivity = 1.0 if terms.privacy.neighbours == "replace" else math.sqrt(2.0)
        return sensitivity * math.sqrt(self._policy.max_heads / self._budget(terms))

    def _question(self, terms: Terms, heads: Sequence[bytes], tests: dict[str, Held]) -> str:
        samples = [f"{client} {held.digest()}" for client, held in tests.items()]
        rules = f"{self._policy.min_count} {self._policy.max_heads}"
        return sha256("\n".join([terms.id, heads_digest(heads), rules, *samples]).encode()).hexdigest()

    def _write_down(
        self, terms: Terms, results: Sequence[LocalEvaluation], heads: Sequence[bytes], tests: dict[str, Held]
    ) -> None:
        unreadable = holdings_of(self._settings, terms).notes_of_unreadable(1)
        for client, held in tests.items():
            facts = {"heads": len(heads), "digest": heads_digest(heads), "samples": len(held.y)}
            self._node.outbox.sending(
                "evaluated", terms, client, **facts, **unreadable, told=[r.n_samples for r in results]
            )
