"""The feature methods: the span of sites' models, who weighs them, and trees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm, settle
from parley.common.algorithms.feature import Node, best, fitted, in_span, independent, levels_of, spanned
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_NORM, to_integers, to_reals
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Softmax
from parley.common.learning.metrics import accuracy
from parley.common.privacy.events import NoEvent
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import events, guarantees, price

K, N, D = 5, 300, 6
NAMES = tuple(f"party-{i + 1}" for i in range(K))
TRUTH = np.random.default_rng(1).normal(size=D)
TREE = (
    {"party": "party-5", "children": ["party-4", "party-3"]},
    {"party": "party-4", "children": ["party-1", "party-2"]},
)


def drawn(seed: int, *shape: int) -> Shard:
    """Rows on the sphere, labelled by a plane with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(*shape, D))
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    return Shard(X, np.sign(X @ TRUTH + 0.1 * rng.normal(size=shape)))


SHARDS, TEST, PUBLIC = drawn(2, K, N), drawn(3, 2000), drawn(4, 200)
LABELLED = np.column_stack([PUBLIC.X, PUBLIC.y])
FULL = {"second": "full", "aggregator": "party-2"}


def facts(epsilon: float = 1.0, rows: FloatArray | None = LABELLED, **terms: object) -> FederationFacts:
    """Facts of five sites with equal budgets."""
    public = {} if rows is None else {"public": rows, "public_shape": rows.shape}
    given = {"epsilon": epsilon, "delta": 1e-5, "n_features": D, "loss": Huber()} | public | terms
    return FederationFacts.uniform(np.full(K, N), **given)  # type: ignore[arg-type]


class TestSpan:
    @pytest.mark.parametrize("size", [1e3, 1.0, 1e-12])
    def test_a_row_s_view_has_length_1_and_keeps_its_direction(self, size: float) -> None:
        """For all models in a message, and rows of any length; what nothing is seen of stays zero."""
        models = np.random.default_rng(5).normal(size=(4, D)) * size
        views = in_span(models, TEST)
        lengths = np.linalg.norm(views.X, axis=1)
        assert (lengths <= 1).all()
        assert (lengths > 1 - 1e-4).all()
        seen = TEST.X @ models.T
        assert np.abs(views.X - seen / np.linalg.norm(seen, axis=1, keepdims=True)).max() < 1e-4
        assert not in_span(models, Shard(np.zeros((2, D)), np.ones(2))).X.any()
        assert not in_span(np.zeros((3, D)), TEST).X.any()

    @pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
    def test_scores_are_about_those_of_views(self, size: float) -> None:
        """Of rows in all directions; or, where public rows tell, of rows like those."""
        models = np.random.default_rng(5).normal(size=(4, D)) * size
        even = np.concatenate([np.eye(D), -np.eye(D)])
        assert (np.linalg.norm(even @ spanned(models).T, axis=1) ** 2).mean() == pytest.approx(1)
        assert np.linalg.norm(PUBLIC.X @ fitted(models, PUBLIC).T, axis=1).mean() == pytest.approx(1)
        nothing = np.zeros((3, D))
        assert not spanned(nothing).any()
        assert not fitted(nothing, PUBLIC).any()

    def test_what_others_span_is_left_out(self) -> None:
        models = np.random.default_rng(6).normal(size=(3, D))
        more = np.vstack([models, models[0] + models[1], np.zeros(D)])
        kept = np.flatnonzero(independent(more).any(axis=1))
        assert len(kept) == 3
        assert np.linalg.matrix_rank(more[kept]) == 3
        assert np.array_equal(independent(more)[kept], more[kept])

    def test_the_best_are_right_most_often_on_public_rows(self) -> None:
        models = np.stack([TRUTH, -TRUTH, np.zeros(D), TRUTH + 0.3 * np.random.default_rng(7).normal(size=D)])
        assert best(models, PUBLIC, 2).any(axis=1).tolist() == [True, False, False, True]


class TestSecondLevels:
    @pytest.mark.parametrize("parameters", [{}, {"select": "independent"}, {"select": "best"}, FULL, {"second": "all"}])
    @pytest.mark.parametrize("secure_sum", [False, True])
    def test_sites_that_know_little_make_a_good_model_together(
        self,
        parameters: dict[str, Any],
        secure_sum: bool,  # noqa: FBT001
    ) -> None:
        """Against what each site's own release reaches; a sum shows the same stack of models, bit for bit."""
        of = facts(2.0, secure_sum=secure_sum)
        feature, release = settle("feature", parameters, of)[0], settle("release", {}, of)[0]
        together = [accuracy(simulate(feature, SHARDS, of, SeededNoise(i)), TEST) for i in range(5)]
        alone = [
            accuracy(model, TEST) for i in range(5) for model in simulate(release, SHARDS, of, SeededNoise(i)).members
        ]
        assert np.mean(together) > np.mean(alone) - 0.02
        assert max(guarantee.epsilon for guarantee in guarantees(feature, of)) <= (2.0 if not secure_sum else 2.5)
        model = simulate(feature, SHARDS, of, NoNoise())
        assert model.made_of["span"].T @ model.made_of["site_weights"] == pytest.approx(model.weights)

    def test_a_secure_sum_shows_the_same_models(self) -> None:
        parameters = {"regularization": 0.05, "law": "gaussian"}
        one, two = (
            simulate(build_algorithm("feature", parameters), SHARDS, facts(secure_sum=secure), SeededNoise(1))
            for secure in (False, True)
        )
        assert np.array_equal(one.weights, two.weights)

    def test_who_has_no_part_answers_zeros_and_pays_nothing(self) -> None:
        algorithm, of = build_algorithm("feature", FULL), facts()
        kinds = [[isinstance(event, NoEvent) for event in events(algorithm, of.of(index))] for index in range(K)]
        assert kinds == [[index == 1, index != 1] for index in range(K)]
        query = Query(2, "weigh", np.eye(K - 1, D))
        prepared = algorithm.prepare(SHARDS, of.everyone)
        answers = algorithm.local(query, prepared, of.everyone, SeededNoise(3))
        assert answers.any(axis=1).tolist() == [index == 1 for index in range(K)]
        assert not algorithm.local(Query(1, "release", np.zeros(0), "each"), prepared, of.everyone, NoNoise())[1].any()
        costs = [price(algorithm, of.of(index)).epsilon for index in range(K)]
        assert [cost[0] > 0 for cost in costs] == [index != 1 for index in range(K)]
        assert len({cost[-1] for cost in costs}) == 1, "each pays once"

    def test_the_aggregator_must_answer(self) -> None:
        of = facts(minimum_contributors=3)
        program = build_algorithm("feature", FULL).program(of)
        next(program)
        program.send(Reply(np.ones((K, D)), tuple(range(K))))
        with pytest.raises(InvalidInputError, match="party-2 did not weigh the models"):
            program.send(Reply(np.zeros(K - 1), (0, 2, 3)))

    def test_a_site_that_did_not_answer_has_no_row(self) -> None:
        of = facts(minimum_contributors=3)
        program = build_algorithm("feature").program(of)
        next(program)
        with pytest.raises(StopIteration) as stop:
            program.send(Reply(np.eye(3, D), (0, 2, 4)))
        assert stop.value.value.made_of["span"].any(axis=1).tolist() == [True, False, True, False, True]

    def test_raw_models_show_through_and_no_ledger_allows_them(self) -> None:
        algorithm = build_algorithm("feature", {"mechanism": "none", **FULL})
        with pytest.raises(BudgetExhaustedError, match="without noise"):
            price(algorithm, facts().of(0))
        (promise,) = guarantees(algorithm, facts())
        assert promise.epsilon == np.inf
        assert any("raw minimisers show through" in words for words in promise.assumptions)

    @pytest.mark.parametrize(
        ("parameters", "terms", "words"),
        [
            ({}, {"rows": None}, "public rows, and the run names none"),
            ({}, {"rows": PUBLIC.X}, "6 columns: they must be the 6 features and a label"),
            (FULL | {"aggregator": "party-9"}, {}, "aggregator names party-9, which take no part: there are party-1"),
            ({"second": "full"}, {}, "second = full needs an aggregator"),
            ({}, {"loss": Softmax(3)}, "proof is for a loss of one score"),
            ({"sites": [{"party": "nobody"}]}, {}, "sites names nobody"),
            ({"second": "all", "step": 100.0}, {}, "step must be below"),
        ],
    )
    def test_what_is_wrong_is_refused_by_name(
        self, parameters: dict[str, Any], terms: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(InvalidInputError, match=words):
            build_algorithm("feature", parameters).questions(facts(**terms))

    def test_public_rows_of_one_class_are_refused_before_anybody_is_asked(self) -> None:
        rows = np.column_stack([PUBLIC.X, np.ones(len(PUBLIC.y))])
        with pytest.raises(InvalidInputError, match="all of one class"):
            next(build_algorithm("feature").program(facts(rows=rows)))

    def test_a_loss_with_a_kink_is_learnt_by_output_perturbation(self) -> None:
        of = facts(5.0, loss=Hinge())
        feature, choices = settle("feature", {"second_mechanism": "output", **FULL}, of)
        assert choices["mechanism"].value == "output"
        assert accuracy(simulate(feature, SHARDS, of, SeededNoise(2)), TEST) > 0.85


class TestStepsThatAreAuditedElsewhere:
    """`tests.audit` is about `release` and `dp_gd`: what is asked here is theirs, bit for bit."""

    @pytest.mark.parametrize("mechanism", ["output", "objective"])
    def test_first_levels_are_releases(self, mechanism: str) -> None:
        of, given = facts(), {"mechanism": mechanism}
        query = Query(1, "release", np.zeros(0), "each")
        own = SHARDS.party(0), of.of(0)
        due = _answer("release", given, query, *own)
        assert np.array_equal(_answer("feature", given, query, *own), due)
        assert np.array_equal(_answer("feature", given | FULL, query, *own), due)
        assert np.array_equal(_answer("multilevel_feature", given, Query(1, "leaves", np.zeros(0), "each"), *own), due)
        half = replace(of, epsilon=of.epsilon * 0.3, delta=of.delta * 0.3).of(0)
        parts = given | {"second": "all", "first_part": 0.3}
        assert np.array_equal(_answer("feature", parts, query, *own), _answer("release", given, query, own[0], half))

    @pytest.mark.parametrize("mechanism", ["output", "objective"])
    def test_an_aggregator_and_a_node_release_of_rows_in_the_span(self, mechanism: str) -> None:
        of = facts()
        models = np.random.default_rng(8).normal(size=(K, D))  # the last party has no model: it weighs in the tree
        weighs = {"second_mechanism": mechanism, "second_regularization": 0.05, **FULL}
        basis = spanned(models[:-1])
        mapped, told = (
            in_span(basis, SHARDS.party(1)),
            FederationFacts.uniform(np.array([N]), epsilon=1.0, delta=1e-5, n_features=K - 1, loss=Huber()).of(0),
        )
        alone = {"mechanism": mechanism, "regularization": 0.05}
        due = _answer("release", alone, Query(1, "release", np.zeros(0), "each"), mapped, told)
        assert np.array_equal(_answer("feature", weighs, Query(2, "weigh", basis), SHARDS.party(1), of.of(1)), due)
        mapped = in_span(basis, SHARDS.party(4))
        due = _answer("release", alone, Query(1, "release", np.zeros(0), "each"), mapped, told)
        node = _answer("multilevel_feature", alone, Query(2, "level-1", models, "each"), SHARDS.party(4), of.of(4))
        assert np.array_equal(node, to_integers(basis.T @ to_reals(due)))

    def test_the_descent_is_dp_gd(self) -> None:
        of = facts()
        left = replace(of, epsilon=of.epsilon * 0.7, delta=of.delta * 0.7).of(2)
        weights = np.full(D, 0.25)
        parts = {"second": "all", "first_part": 0.3, "n_rounds": 7}
        one = _answer("feature", parts, Query(5, "gradient", weights), SHARDS.party(2), of.of(2))
        assert np.array_equal(
            one, _answer("dp_gd", {"n_rounds": 7}, Query(4, "gradient", weights), SHARDS.party(2), left)
        )
        events_of = events(build_algorithm("feature", parts), of.of(2))[1:]
        assert events_of == events(build_algorithm("dp_gd", {"n_rounds": 7}), left)


def _answer(name: str, parameters: dict[str, Any], query: Query, shard: Shard, own: OwnFacts) -> IntArray:
    """What a party answers by an algorithm, its noise seeded."""
    algorithm = build_algorithm(name, parameters)
    return algorithm.local(query, algorithm.prepare(shard, own), own, SeededNoise(11))


class TestTrees:
    def test_levels_are_from_the_leaves_up(self) -> None:
        nodes = [Node.model_validate(node) for node in TREE]
        assert levels_of(nodes, NAMES) == {"party-1": 0, "party-2": 0, "party-3": 0, "party-4": 1, "party-5": 2}
        assert levels_of((), NAMES)["party-5"] == 1

    @pytest.mark.parametrize(
        ("tree", "words"),
        [
            ([("party-5", ["party-9"])], "the tree names party-9, which take no part"),
            ([("party-5", ["party-1", "party-1"])], "party-1: a node stands in a tree once"),
            ([("party-5", ["party-1"]), ("party-5", ["party-2"])], "party-5: a node stands in a tree once"),
            ([("party-5", ["party-1", "party-2", "party-3"])], "party-4: alone"),
            ([("party-5", ["party-4", "party-1", "party-2", "party-3"]), ("party-4", ["party-5"])], "in a circle"),
            ([("party-5", ["party-1", "party-2"]), ("party-4", ["party-3"])], "party-4, party-5 are below nobody"),
        ],
    )
    def test_what_is_no_tree_is_refused_by_name(self, tree: list[tuple[str, list[str]]], words: str) -> None:
        nodes = [{"party": party, "children": children} for party, children in tree]
        with pytest.raises(InvalidInputError, match=words):
            build_algorithm("multilevel_feature", {"tree": nodes}).questions(facts())
        with pytest.raises(InvalidInputError, match=words):  # what is left open is chosen first
            settle("multilevel_feature", {"tree": nodes}, facts())[0].questions(facts())

    @pytest.mark.parametrize("secure_sum", [False, True])
    def test_releases_climb_and_each_site_pays_once(self, secure_sum: bool) -> None:  # noqa: FBT001
        of = facts(3.0, secure_sum=secure_sum)
        algorithm, _ = settle("multilevel_feature", {"tree": TREE}, of)
        parts = [
            [not isinstance(event, NoEvent) for event in events(algorithm, of.of(index))].index(True)
            for index in range(K)
        ]
        assert parts == [0, 0, 0, 1, 2]
        assert all(sum(not isinstance(e, NoEvent) for e in events(algorithm, of.of(index))) == 1 for index in range(K))
        reached = [accuracy(simulate(algorithm, SHARDS, of, SeededNoise(i)), TEST) for i in range(5)]
        assert np.mean(reached) > 0.85
        assert any("sees every site's release" in words for words in guarantees(algorithm, of)[0].assumptions)

    def test_the_root_must_answer(self) -> None:
        of = facts(minimum_contributors=3, loss=Logistic())
        program = build_algorithm("multilevel_feature").program(of)
        next(program)
        program.send(Reply(np.ones((4, D)), (0, 1, 2, 3)))
        with pytest.raises(InvalidInputError, match="party-5, the root of the tree, did not answer"):
            program.send(Reply(np.zeros((4, D)), (0, 1, 2, 3)))

    def test_no_release_is_refused_however_large_its_noise(self) -> None:
        """A learner could ask a node again for nothing, and by how often that is refused learn what the noise hides."""
        d = 4096
        of = FederationFacts.uniform(np.full(2, 50), epsilon=0.1, delta=1e-6, n_features=d, loss=Logistic()).of(1)
        algorithm = build_algorithm("multilevel_feature", {"mechanism": "output", "regularization": 1e-4})
        algorithm.check_noise(of)
        models = np.zeros((2, d))
        models[0, 0] = 1.0  # by all of a basis along one column, a weight is made sqrt(d) times as large
        shard, noise = Shard(np.eye(1, d).repeat(50, axis=0), np.ones(50)), SeededNoise(1)
        query = Query(2, "level-1", models, "each")
        told = [to_reals(algorithm.local(query, shard, of, noise)) for _ in range(300)]
        beyond = sum(abs(answer[0]) == MAX_NORM for answer in told)
        print(f"{beyond} of 300 answers are cut off at {MAX_NORM:g}")
        assert beyond > 0


def test_a_bent_ridge_is_a_ridge_of_bent_rows_and_promises_nothing() -> None:
    of = facts(rows=None)
    algorithm = build_algorithm("matrix_perturbation", {"regularization": 0.05})
    exact = simulate(build_algorithm("local", {"regularization": 0.05}), SHARDS, of, NoNoise()).weights
    assert simulate(algorithm, SHARDS, of, NoNoise()).weights == pytest.approx(exact, abs=1e-4)
    assert (
        np.linalg.norm(simulate(algorithm, SHARDS, of, SeededNoise(1)).weights, axis=1) < np.linalg.norm(exact, axis=1)
    ).all()
    assert guarantees(algorithm, of)[0].epsilon == np.inf
