"""The command `clusterdp`, for spark-submit: a release on a cluster, with every option it has.

spark-submit --master yarn examples/spark_submit.py release s3a://bucket/clicks
    --unit user --arm treated --cluster market --outcome clicks=0..5
    --epsilon 2 --engine spark --out s3a://bucket/published

Every machine of the cluster needs clusterdp[spark]: install it there, or ship an environment with
--archives (see "Python Package Management" in Spark's documentation). With spark-submit the master
and all other settings are Spark's own. With --deploy-mode cluster, give those that encrypt, too
(see docs/studies/scale.md).
"""

from clusterdp.cli.app import app

if __name__ == "__main__":
    app()
