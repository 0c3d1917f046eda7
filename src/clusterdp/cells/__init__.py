"""Who took part, in public: arms, clusters, sizes of cells, and how they are pooled."""
